// Reproducible inputs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace longspan::support {

// Uniform in (-scale, scale), the same for equal arguments, and rounded so that `type` (f32 or
// bf16) holds them exactly.
std::vector<float> RandomValues(int64_t count, uint64_t seed, double scale = 1,
                                tensor::DType type = tensor::DType::kF32);

// |x| of every value.
std::vector<float> Magnitudes(std::span<const float> values);

// 0 .. count - 1 in a random order.
std::vector<int32_t> RandomPermutation(int64_t count, uint64_t seed);

}  // namespace longspan::support
