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

// Of `count` candidates, candidate(i) in ascending order of positions, keeps the `top_k` best:
// keep(place, candidate), in order. keep() may overwrite what candidate() has read: place <= i. Of
// fewer all are kept. Returns the score of the worst one kept. To be called by all threads, after
// a barrier.
template <int kThreads, typename Read, typename Keep>
__device__ uint32_t KeepBest(int32_t count, int32_t top_k, DropScratch<kThreads>& scratch,
                             const Read& candidate, const Keep& keep) {
  const int tid = static_cast<int>(threadIdx.x);
  const int lane = tid % 32;
  // The top_k'th largest score, a byte at a time from the highest.
  uint32_t prefix = 0;
  int32_t wanted = min(top_k, count);
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = tid; i < 256; i += kThreads) scratch.histogram[i] = 0;
    __syncthreads();
    for (int32_t base = 0; base < count; base += kThreads) {
      const int32_t i = base + tid;
      const uint32_t score = i < count ? candidate(i).score : 0;
      const bool counts = i < count && (shift == 24 || score >> (shift + 8) == prefix);
      // Most scores share their first byte: one addition for all of a warp that are equal.
      const int bin = counts ? static_cast<int>(score >> shift & 255) : -1;
      const uint32_t equals = __match_any_sync(0xffffffff, bin);
      if (counts && __ffs(static_cast<int>(equals)) - 1 == lane)
        atomicAdd(&scratch.histogram[bin], __popc(equals));
    }
    __syncthreads();
    if (tid < 32) {
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
    __syncthreads();
    prefix = scratch.prefix;
    wanted = scratch.wanted;
  }
  // Places of those above it, and of the first `wanted` that equal it.
  const auto before = [&](bool flag, int32_t& total) {
    const uint32_t votes = __ballot_sync(0xffffffff, flag);
    __syncthreads();
    if (lane == 0) scratch.warp_counts[tid / 32] = __popc(votes);
    __syncthreads();
    int32_t place = __popc(votes & ((1u << lane) - 1));
    total = 0;
    for (int warp = 0; warp < kThreads / 32; ++warp) {
      if (warp < tid / 32) place += scratch.warp_counts[warp];
      total += scratch.warp_counts[warp];
    }
    return place;
  };
  int32_t kept = 0;
  int32_t equal = 0;
  for (int32_t base = 0; base < count; base += kThreads) {
    const int32_t i = base + tid;
    const Candidate own = i < count ? candidate(i) : Candidate{0, -1};
    const bool same = own.position >= 0 && own.score == prefix;
    int32_t total = 0;
    const int32_t same_before = equal + before(same, total);
    equal += total;
    const bool good = own.position >= 0 && (own.score > prefix || (same && same_before < wanted));
    const int32_t place = kept + before(good, total);
    kept += total;
    if (good) keep(place, own);
  }
  __syncthreads();
  return prefix;
}

}  // namespace longspan::backend::cuda
