// Finds the element at which a running total, from the largest key down, reaches a target: the k-th
// largest (every element counts one), or where a probability is reached (every element counts its
// weight). All totals are integers, so that no order of addition matters. By one block.
//
// Two levels: a histogram over the distance from the largest value, in 128 buckets for every power
// of two, which spreads the elements at any scale; then the bits of the keys of one bucket, which
// usually fits into shared memory.
#pragma once

#include <cstdint>

#include "backend/cuda/device_types.cuh"

namespace longspan::backend::cuda {

constexpr int kSelectThreads = 1024;
constexpr int kBuckets = 2048;
constexpr int kListed = 2048;

using Total = unsigned long long;  // NOLINT(google-runtime-int): what atomicAdd takes

struct SelectionScratch {
  uint32_t counts[kBuckets];
  Total totals[kBuckets];
  Total list[kListed];  // keys of one bucket
  int listed;
  uint32_t digit_counts[256];
  Total digit_totals[256];
  Total warp_totals[kSelectThreads / 32];
  int found;
  Total before;
};

// Where the total reaches the target: elements with larger keys, and `equal_kept` of the `equal`
// ones with this key.
struct Threshold {
  uint64_t key = 0;
  Total above = 0;  // the total of larger keys
  int64_t equal = 0;
  int64_t equal_kept = 0;
};

// Of a distance from the largest value; not decreasing. From 1/64 to 1024 in steps of 1/128 of a
// power of two.
__device__ inline int BucketOf(double distance) {
  const auto bits = static_cast<int>(__float_as_uint(__double2float_rn(distance)) >> 16);
  return min(max(bits - (121 << 7), 0), kBuckets - 1);
}

// Larger for larger values; the same for zeros of both signs.
__device__ inline uint64_t KeyOf(double value) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(value + 0.0));
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}
__device__ inline double ValueOf(uint64_t key) {
  const uint64_t bits = key >> 63 != 0 ? key & ~(uint64_t{1} << 63) : ~key;
  return __longlong_as_double(static_cast<int64_t>(bits));
}
__device__ inline uint32_t KeyOf(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 1u << 31;
}
__device__ inline float ValueOf(uint32_t key) {
  return __uint_as_float(key >> 31 != 0 ? key & ~(1u << 31) : ~key);
}

// Sets scratch.found to the first bin with which the running total reaches `target` (above 0), and
// scratch.before to the total before it; the last bin where it does not.
template <typename T>
__device__ void FindBin(const T* bins, int size, Total target, SelectionScratch& scratch) {
  const int each = (size + kSelectThreads - 1) / kSelectThreads;
  const int first = static_cast<int>(threadIdx.x) * each;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  Total own = 0;
  for (int i = first; i < min(first + each, size); ++i) own += bins[i];
  Total sum = own;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const Total other = __shfl_up_sync(kWholeWarp, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == 31) scratch.warp_totals[warp] = sum;
  if (threadIdx.x == 0) {
    scratch.found = size - 1;
    scratch.before = 0;
  }
  __syncthreads();
  Total before = sum - own;
  for (int i = 0; i < warp; ++i) before += scratch.warp_totals[i];
  if (before < target && before + own >= target) {
    int bin = first;
    while (before + bins[bin] < target) before += bins[bin++];
    scratch.found = bin;
    scratch.before = before;
  }
  __syncthreads();
}

// for_each_key(use) calls use(valid, key) in whole warps. total_of(key) is what an element counts.
template <typename ForEachKey, typename TotalOf>
__device__ Threshold SelectByBits(const ForEachKey& for_each_key, const TotalOf& total_of,
                                  Total target, SelectionScratch& scratch) {
  Threshold threshold;
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kSelectThreads) {
      scratch.digit_counts[i] = 0;
      scratch.digit_totals[i] = 0;
    }
    __syncthreads();
    const uint64_t prefix = threshold.key;
    for_each_key([&](bool valid, uint64_t key) {
      const bool in = valid && (shift == 56 || (key ^ prefix) >> (shift + 8) == 0);
      // Best first.
      const int bin = 255 - static_cast<int>(key >> shift & 255);
      int alike = 0;
      __match_all_sync(kWholeWarp, in ? key : ~key, &alike);
      if (__all_sync(kWholeWarp, in) && alike != 0) {
        // Many equal elements would wait for each other.
        if (threadIdx.x % 32 != 0) return;
        atomicAdd(scratch.digit_counts + bin, 32u);
        atomicAdd(scratch.digit_totals + bin, 32 * total_of(key));
      } else if (in) {
        atomicAdd(scratch.digit_counts + bin, 1u);
        atomicAdd(scratch.digit_totals + bin, total_of(key));
      }
    });
    __syncthreads();
    FindBin(scratch.digit_totals, 256, target - threshold.above, scratch);
    threshold.key |= static_cast<uint64_t>(255 - scratch.found) << shift;
    threshold.above += scratch.before;
    threshold.equal = scratch.digit_counts[scratch.found];
    __syncthreads();
  }
  const Total each = total_of(threshold.key);
  threshold.equal_kept = threshold.equal;
  if (each > 0) {
    const auto needed = static_cast<int64_t>((target - threshold.above + each - 1) / each);
    threshold.equal_kept = min(max(needed, int64_t{1}), threshold.equal);
  }
  return threshold;
}

// The threshold among the elements [0, size), of which bucket_of(i) is the bucket (or -1: not
// there) and key_of(i) the key, once scratch.counts and .totals hold the histogram. `bins` is the
// one of the two that counts total_of.
template <typename Bins, typename BucketOfElement, typename KeyOfElement, typename TotalOf>
__device__ Threshold Select(const Bins* bins, int64_t size, const BucketOfElement& bucket_of,
                            const KeyOfElement& key_of, const TotalOf& total_of, Total target,
                            SelectionScratch& scratch) {
  FindBin(bins, kBuckets, target, scratch);
  const int bucket = scratch.found;
  const Total before = scratch.before;
  const bool listed = scratch.counts[bucket] <= kListed;
  if (threadIdx.x == 0) scratch.listed = 0;
  __syncthreads();
  if (listed)
    for (int64_t i = threadIdx.x; i < size; i += kSelectThreads)
      if (bucket_of(i) == bucket) scratch.list[atomicAdd(&scratch.listed, 1)] = key_of(i);
  __syncthreads();
  const auto for_each_key = [&](const auto& use) {
    const int64_t count = listed ? scratch.listed : size;
    for (int64_t first = 0; first < count; first += kSelectThreads) {
      const int64_t i = first + threadIdx.x;
      const bool valid = i < count && (listed || bucket_of(i) == bucket);
      use(valid, !valid ? 0 : listed ? scratch.list[i] : key_of(i));
    }
  };
  Threshold threshold = SelectByBits(for_each_key, total_of, target - before, scratch);
  threshold.above += before;
  return threshold;
}

}  // namespace longspan::backend::cuda
