// Elements on the device: f32 and bf16, one by one or 16 bytes at a time, and what warps share.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>

#include "tensor/dtype.h"
#include "tensor/view.h"

namespace longspan::backend::cuda {

__device__ inline float Load(const float* p) { return *p; }
__device__ inline float Load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ inline void Store(float* p, float value) { *p = value; }
__device__ inline void Store(__nv_bfloat16* p, float value) { *p = __float2bfloat16_rn(value); }

// kCount elements as floats. With kCount > 1 the address is a multiple of their size, at most 16
// bytes at once.
template <typename T, int kCount>
struct Values {
  float v[kCount];

  __device__ void Read(const T* from) {
    if constexpr (kCount == 1) {
      v[0] = Load(from);
    } else {
      constexpr int kAtOnce = 16 / sizeof(T);
      static_assert(kCount % kAtOnce == 0);
#pragma unroll
      for (int part = 0; part < kCount / kAtOnce; ++part) {
        alignas(16) T elements[kAtOnce];
        *reinterpret_cast<uint4*>(elements) =
            *reinterpret_cast<const uint4*>(from + part * kAtOnce);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) v[part * kAtOnce + i] = Load(elements + i);
      }
    }
  }
  __device__ void Write(T* to) const {
    if constexpr (kCount == 1) {
      Store(to, v[0]);
    } else {
      constexpr int kAtOnce = 16 / sizeof(T);
#pragma unroll
      for (int part = 0; part < kCount / kAtOnce; ++part) {
        alignas(16) T elements[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) Store(elements + i, v[part * kAtOnce + i]);
        *reinterpret_cast<uint4*>(to + part * kAtOnce) = *reinterpret_cast<const uint4*>(elements);
      }
    }
  }
};

// Whether rows of `columns` elements can be read 16 bytes at a time wherever the view has them.
inline bool IsVectorReadable(const tensor::ConstView& view, int64_t columns) {
  const int64_t at_once = 16 / tensor::SizeOf(view.dtype());
  if (reinterpret_cast<uintptr_t>(view.raw()) % 16 != 0 || columns % at_once != 0) return false;
  for (int i = 0; i + 1 < view.rank(); ++i)
    if (view.stride(i) % at_once != 0) return false;
  return true;
}

constexpr unsigned kWholeWarp = 0xffffffffu;

// Over each kLanes neighbouring lanes of a warp; every lane gets it.
template <int kLanes = 32, typename T>
__device__ T WarpSum(T value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(kWholeWarp, value, offset);
  return value;
}

// Over kThreads neighbouring threads: those of a block, or of a part of a warp; every thread gets
// it. `scratch` has kThreads / 32 entries and may be used again after the next __syncthreads().
template <int kThreads, typename T>
__device__ T BlockSum(T value, T* scratch) {
  value = WarpSum<(kThreads < 32 ? kThreads : 32)>(value);
  if constexpr (kThreads > 32) {
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) value += scratch[warp];
  }
  return value;
}

}  // namespace longspan::backend::cuda
