// The best positions of scores that stream by, by a whole block. Candidates are kept in ascending
// order of their positions; of equal scores the lower positions win.
#pragma once

#include <cstdint>

namespace longspan::backend::cuda {

// A score as a number that orders as it does; NaN counts as minus infinity, zeros are equal.
__device__ inline uint32_t OrderedScore(float score) {
  if (isnan(score)) score = -INFINITY;
  if (score == 0) score = 0;  // of either sign
  const uint32_t bits = __float_as_uint(score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Candidate {
  uint32_t score;
  int32_t position;
};

// What a block needs to drop candidates.
template <int kThreads>
struct DropScratch {
  static constexpr int kWarps = kThreads / 32;
  int32_t histogram[256];
  int32_t warp_counts[kWarps];
  uint32_t prefix;
  int32_t wanted;
};

// How many of the candidates whose scores begin with `prefix` have which next byte, at `shift`.
template <int kThreads, typename Read>
__device__ void CountBytes(int32_t count, uint32_t prefix, int shift,
                           DropScratch<kThreads>& scratch, const Read& candidate) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int i = tid; i < 256; i += kThreads) scratch.histogram[i] = 0;
  __syncthreads();
  for (int32_t base = 0; base < count; base += kThreads) {
    const int32_t i = base + tid;
    const uint32_t score = i < count ? candidate(i).score : 0;
    const bool counts = i < count && (shift == 24 || score >> (shift + 8) == prefix);
    // Most scores share their first byte: one addition for all of a warp that are equal.
    const int bin = counts ? static_cast<int>(score >> shift & 255) : -1;
    const uint32_t equals = __match_any_sync(0xffffffff, bin);
    if (counts && __ffs(static_cast<int>(equals)) - 1 == tid % 32)
      atomicAdd(&scratch.histogram[bin], __popc(equals));
  }
  __syncthreads();
}

// The byte that the `wanted`th largest has, behind the prefix, and its place among those with it.
// By one warp.
template <int kThreads>
__device__ void FindByte(uint32_t prefix, int32_t wanted, DropScratch<kThreads>& scratch) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lane i has the bytes 255 - 8 i and seven below.
  int32_t counts[8];
  int32_t own = 0;
  for (int j = 0; j < 8; ++j) own += counts[j] = scratch.histogram[255 - lane * 8 - j];
  int32_t above = own;
  for (int step = 1; step < 32; step *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffff, above, step);
    if (lane >= step) above += other;
  }
  above -= own;
  for (int j = 0; j < 8; ++j) {
    if (above < wanted && above + counts[j] >= wanted) {
      scratch.prefix = prefix << 8 | static_cast<uint32_t>(255 - lane * 8 - j);
      scratch.wanted = wanted - above;
    }
    above += counts[j];
  }
}

// How many threads before this one have the flag, and how many of all.
template <int kThreads>
__device__ int32_t CountBefore(bool flag, int32_t& total, DropScratch<kThreads>& scratch) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t votes = __ballot_sync(0xffffffff, flag);
  __syncthreads();
  if (lane == 0) scratch.warp_counts[warp] = __popc(votes);
  __syncthreads();
  int32_t before = __popc(votes & ((1u << lane) - 1));
  total = 0;
  for (int i = 0; i < kThreads / 32; ++i) {
    if (i < warp) before += scratch.warp_counts[i];
    total += scratch.warp_counts[i];
  }
  return before;
}

// Of `count` candidates, candidate(i) in ascending order of positions, keeps the `top_k` best:
// keep(place, candidate), in order. keep() may overwrite what candidate() has read: place <= i. Of
// fewer all are kept. Returns the score of the worst one kept. To be called by all threads, after
// a barrier.
template <int kThreads, typename Read, typename Keep>
__device__ uint32_t KeepBest(int32_t count, int32_t top_k, DropScratch<kThreads>& scratch,
                             const Read& candidate, const Keep& keep) {
  // The top_k'th largest score, a byte at a time from the highest.
  uint32_t worst = 0;
  int32_t wanted = min(top_k, count);
  for (int shift = 24; shift >= 0; shift -= 8) {
    CountBytes(count, worst, shift, scratch, candidate);
    if (threadIdx.x < 32) FindByte(worst, wanted, scratch);
    __syncthreads();
    worst = scratch.prefix;
    wanted = scratch.wanted;
  }
  // Those above it, and the first `wanted` that equal it.
  int32_t kept = 0;
  int32_t equal = 0;
  for (int32_t base = 0; base < count; base += kThreads) {
    const int32_t i = base + static_cast<int32_t>(threadIdx.x);
    const Candidate own = i < count ? candidate(i) : Candidate{0, -1};
    const bool same = own.position >= 0 && own.score == worst;
    int32_t total = 0;
    const int32_t same_before = equal + CountBefore(same, total, scratch);
    equal += total;
    const bool good = own.position >= 0 && (own.score > worst || (same && same_before < wanted));
    const int32_t place = kept + CountBefore(good, total, scratch);
    kept += total;
    if (good) keep(place, own);
  }
  __syncthreads();
  return worst;
}

}  // namespace longspan::backend::cuda
