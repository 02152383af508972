// Parts of one row's attention, each with a maximum and sums of its own, merged in their order.
#pragma once

#include <numbers>

#include "backend/cuda/element.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace longspan::backend::cuda {

// A part's floats: its maximum (times log2 e), its sum of weights, two unused, then weighted sums.
constexpr int kPartExtra = 4;

// log(sum of exp) of scores whose largest is `largest` (times log2 e), and the sum relative to it.
__device__ inline float LogSumOf(float largest, float sum) {
  return sum == 0 ? -INFINITY : (largest + log2f(sum)) * std::numbers::ln2_v<float>;
}
// What a row's sums are multiplied by; rows that have seen no key are zeros.
__device__ inline float InverseOf(float sum) { return sum == 0 ? 0 : 1 / sum; }

// By a whole block: one row of `dim` from `parts` parts, `stride` floats apart. Returns the row's
// LogSumOf.
template <typename Out>
__device__ float MergeParts(const float* part, int parts, int64_t stride, int dim, Out* out) {
  float largest = -INFINITY;
  for (int i = 0; i < parts; ++i) largest = fmaxf(largest, part[i * stride]);
  const float base = largest == -INFINITY ? 0 : largest;
  float sum = 0;
  for (int i = 0; i < parts; ++i) sum += part[i * stride + 1] * Exp2(part[i * stride] - base);
  const float inverse = InverseOf(sum);
  for (int column = static_cast<int>(threadIdx.x); column < dim;
       column += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int i = 0; i < parts; ++i)
      total += part[i * stride + kPartExtra + column] * Exp2(part[i * stride] - base);
    out[column] = FromFloat<Out>(total * inverse);
  }
  return LogSumOf(largest, sum);
}

}  // namespace longspan::backend::cuda
