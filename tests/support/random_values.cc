#include "tests/support/random_values.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "ops/counter_random.h"

namespace longspan::support {

std::vector<float> RandomValues(int64_t count, uint64_t seed, double scale, tensor::DType type) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(scale * (2 * ops::CounterUniform(seed, i, 0) - 1));
    if (type == tensor::DType::kBf16) values[i] = tensor::ToFloat(tensor::ToBf16(values[i]));
  }
  return values;
}

std::vector<float> Magnitudes(std::span<const float> values) {
  std::vector<float> magnitudes;
  magnitudes.reserve(values.size());
  for (const float value : values) magnitudes.push_back(std::abs(value));
  return magnitudes;
}

std::vector<int32_t> RandomPermutation(int64_t count, uint64_t seed) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(order[i], order[ops::CounterBits(seed, i, 1) % static_cast<uint64_t>(i + 1)]);
  return order;
}

}  // namespace longspan::support
