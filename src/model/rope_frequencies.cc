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

// The dimension (of `dim`) that turns so often over the original context.
double DimensionThatTurns(double turns, double theta, double original, int dim) {
  return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

// `frequencies` are unscaled; kept below the ramp, divided by the factor above it.
void ApplyYarn(const spec::YarnRopeScaling& yarn, double theta, int dim,
               std::vector<float>& frequencies) {
  const auto original = static_cast<double>(yarn.original_context_length);
  const double low =
      std::max(std::floor(DimensionThatTurns(yarn.beta_fast, theta, original, dim)), 0.0);
  const double high =
      std::min(std::ceil(DimensionThatTurns(yarn.beta_slow, theta, original, dim)), dim - 1.0);
  const auto factor = static_cast<float>(yarn.factor);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double along = (static_cast<double>(i) - low) / std::max(high - low, 0.001);
    const auto ramp = static_cast<float>(std::clamp(along, 0.0, 1.0));
    frequencies[i] = frequencies[i] / factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double YarnMagnitude(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1;
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const spec::RopeSpec& rope, int dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < dim; i += 2) {
    const float frequency =
        1.0f / static_cast<float>(std::pow(rope.theta, static_cast<double>(i) / dim));
    frequencies.push_back(rope.llama3 ? Llama3Scaled(frequency, *rope.llama3) : frequency);
  }
  if (rope.yarn) ApplyYarn(*rope.yarn, rope.theta, dim, frequencies);
  return frequencies;
}

float RopeAmplitude(const spec::RopeSpec& rope) {
  if (!rope.yarn) return 1;
  const spec::YarnRopeScaling& yarn = *rope.yarn;
  if (yarn.attention_factor) return static_cast<float>(*yarn.attention_factor);
  if (yarn.mscale == 0 || yarn.mscale_all_dim == 0)
    return static_cast<float>(YarnMagnitude(yarn.factor, 1));
  return static_cast<float>(YarnMagnitude(yarn.factor, yarn.mscale) /
                            YarnMagnitude(yarn.factor, yarn.mscale_all_dim));
}

int RotatedDimensions(const spec::ModelSpec& model) {
  return model.latent_attention ? model.latent_attention->rope_dim : model.attention.head_dim;
}

double LatentScoreScale(const spec::RopeSpec& rope, int head_dim) {
  const double magnitude =
      rope.yarn ? YarnMagnitude(rope.yarn->factor, rope.yarn->mscale_all_dim) : 1;
  return magnitude * magnitude / std::sqrt(head_dim);
}

}  // namespace longspan::model
