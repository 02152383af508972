// Parts of one row's attention, each with a maximum and sums of its own, merged in their order.
#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace longspan::backend::cuda {

// A part's floats: its maximum (times log2 e), its sum of weights, two unused, then weighted sums.
constexpr int kPartExtra = 4;

// The sum of exp of scores as ops/merge_attention.h has it: m (times log2 e) and l.
__device__ inline float2 ExpSumOf(float largest, float sum) {
  return {sum == 0 ? -INFINITY : largest, sum};
}
// What a row's sums are multiplied by; rows that have seen no key are zeros.
__device__ inline float InverseOf(float sum) { return sum == 0 ? 0 : 1 / sum; }

// By a whole block: one row of `dim` from `parts` parts, `stride` floats apart. Returns the row's
// ExpSumOf.
template <typename Out>
__device__ float2 MergeParts(const float* part, int parts, int64_t stride, int dim, Out* out) {
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
  return ExpSumOf(largest, sum);
}

}  // namespace longspan::backend::cuda
