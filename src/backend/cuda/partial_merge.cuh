// Parts of one row's attention, each with a maximum and sums of its own, merged in their order.
#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace longspan::backend::cuda {

// A part's floats: its maximum (times log2 e), its sum of weights, two unused, then weighted sums.
constexpr int kPartExtra = 4;

// By a whole block: one row of `dim` from `parts` parts, `stride` floats apart. The first part has
// seen a key.
template <typename Out>
__device__ void MergeParts(const float* part, int parts, int64_t stride, int dim, Out* out) {
  float largest = -INFINITY;
  for (int i = 0; i < parts; ++i) largest = fmaxf(largest, part[i * stride]);
  float sum = 0;
  for (int i = 0; i < parts; ++i) sum += part[i * stride + 1] * Exp2(part[i * stride] - largest);
  const float inverse = 1 / sum;
  for (int column = static_cast<int>(threadIdx.x); column < dim;
       column += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int i = 0; i < parts; ++i)
      total += part[i * stride + kPartExtra + column] * Exp2(part[i * stride] - largest);
    out[column] = FromFloat<Out>(total * inverse);
  }
}

}  // namespace longspan::backend::cuda
