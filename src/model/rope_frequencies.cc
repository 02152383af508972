#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace longspan::model {
namespace {

float Llama3Scaled(float frequency, const spec::Llama3RopeScaling& scaling) {
  const auto original = static_cast<float>(scaling.original_context_length);
  const auto low = static_cast<float>(scaling.low_frequency_factor);
  const auto high = static_cast<float>(scaling.high_frequency_factor);
  const auto factor = static_cast<float>(scaling.factor);
  const float turns = original * frequency / (2 * std::numbers::pi_v<float>);
  const float kept = std::clamp((turns - low) / (high - low), 0.0f, 1.0f);
  return (1 - kept) * frequency / factor + kept * frequency;
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const spec::RopeSpec& rope, int dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < dim; i += 2) {
    const float frequency =
        1.0f / static_cast<float>(std::pow(rope.theta, static_cast<double>(i) / dim));
    frequencies.push_back(rope.llama3 ? Llama3Scaled(frequency, *rope.llama3) : frequency);
  }
  return frequencies;
}

}  // namespace longspan::model
