// Logits as the ops read them, also where a model has gone wrong; and their sum of exponentials.
#pragma once

#include <cfloat>
#include <cstdint>

#include "backend/cuda/device_types.cuh"

namespace longspan::backend::cuda {

constexpr float kMinusInfinity = -__builtin_huge_valf();

// NaN is as unlikely as can be, and infinity as large as a float can be: a difference of two logits
// is a number, unless both are minus infinity.
__device__ inline float Logit(float value) {
  return isnan(value) ? kMinusInfinity : fminf(value, FLT_MAX);
}

// log(sum of exp), as a largest logit and a sum relative to it.
struct LogSum {
  float largest = kMinusInfinity;
  double sum = 0;

  __device__ void Add(float logit) {
    if (logit > largest) {
      sum = largest == kMinusInfinity ? 1.0 : sum * expf(largest - logit) + 1.0;
      largest = logit;
    } else if (logit != kMinusInfinity) {
      sum += expf(logit - largest);
    }
  }
  __device__ void Merge(float other_largest, double other_sum) {
    if (other_largest == kMinusInfinity) return;
    if (other_largest > largest) {
      sum = (largest == kMinusInfinity ? 0.0 : sum * expf(largest - other_largest)) + other_sum;
      largest = other_largest;
    } else {
      sum += other_sum * expf(other_largest - largest);
    }
  }
  // 0 where no logit is a number.
  __device__ double Value() const {
    return largest == kMinusInfinity ? 0.0 : static_cast<double>(largest) + log(sum);
  }
};

// Of a warp or block of kThreads; valid in thread 0.
template <int kThreads>
__device__ LogSum MergeLogSums(LogSum own) {
  __shared__ float largest[32];
  __shared__ double sums[32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_down_sync(kWholeWarp, own.largest, offset);
    const double other_sum = __shfl_down_sync(kWholeWarp, own.sum, offset);
    own.Merge(other, other_sum);
  }
  if (threadIdx.x % 32 == 0) {
    largest[threadIdx.x / 32] = own.largest;
    sums[threadIdx.x / 32] = own.sum;
  }
  __syncthreads();
  LogSum all;
  if (threadIdx.x == 0)
    for (int warp = 0; warp < kThreads / 32; ++warp) all.Merge(largest[warp], sums[warp]);
  return all;
}

// The better of two (value, index): the larger value, of equal ones the lower index; an index below
// zero is none.
template <typename T>
struct Best {
  T value = 0;
  int32_t index = -1;

  __device__ void Take(T other, int32_t other_index) {
    if (other_index < 0) return;
    if (index < 0 || other > value || (other == value && other_index < index)) {
      value = other;
      index = other_index;
    }
  }
};

// Of a warp; every lane gets it.
template <typename T>
__device__ Best<T> BestOfWarp(Best<T> best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const T value = __shfl_xor_sync(kWholeWarp, best.value, offset);
    const int32_t index = __shfl_xor_sync(kWholeWarp, best.index, offset);
    best.Take(value, index);
  }
  return best;
}

// Of a block of kThreads; every thread gets it.
template <int kThreads, typename T>
__device__ Best<T> BestOfBlock(Best<T> best) {
  __shared__ T values[32];
  __shared__ int32_t indices[32];
  best = BestOfWarp(best);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    values[threadIdx.x / 32] = best.value;
    indices[threadIdx.x / 32] = best.index;
  }
  __syncthreads();
  Best<T> all;
#pragma unroll 1
  for (int warp = 0; warp < kThreads / 32; ++warp) all.Take(values[warp], indices[warp]);
  return all;
}

}  // namespace longspan::backend::cuda
