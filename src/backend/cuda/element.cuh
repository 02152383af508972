// Elements of either type, and kernels for the types of a call.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>

#include "tensor/view.h"

namespace longspan::backend::cuda {

using Bf16 = __nv_bfloat16;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Bf16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x) {
  if constexpr (sizeof(T) == 2)
    return __float2bfloat16_rn(x);
  else
    return x;
}

// function(T()) for the element type.
template <typename Function>
void WithType(tensor::DType type, const Function& function) {
  if (type == tensor::DType::kBf16) return function(Bf16());
  function(float());
}
template <typename Function>
void WithTypes(tensor::DType first, tensor::DType second, const Function& function) {
  WithType(first, [&](auto a) { WithType(second, [&](auto b) { function(a, b); }); });
}

// Whether every innermost row begins at a multiple of 16 bytes and is a multiple of 16 bytes long.
inline bool IsAligned16(const tensor::ConstView& view) {
  const int64_t element = tensor::SizeOf(view.dtype());
  bool aligned = reinterpret_cast<uintptr_t>(view.raw()) % 16 == 0 &&
                 view.size(view.rank() - 1) * element % 16 == 0;
  for (int i = 0; i + 1 < view.rank(); ++i) aligned &= view.stride(i) * element % 16 == 0;
  return aligned;
}

}  // namespace longspan::backend::cuda
