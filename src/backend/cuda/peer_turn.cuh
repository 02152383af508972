// How the blocks of ranks' kernels meet, and copy from each other (peer_kernels.h).
#pragma once

#include <algorithm>

#include "backend/cuda/device_types.cuh"
#include "backend/cuda/peer_kernels.h"

namespace longspan::backend::cuda {

constexpr int kThreads = 512;
constexpr int kAtOnce = 4;  // loads of a thread on their way
constexpr int64_t kBytesPerBlock = int64_t{8} << 10;
// Looks at a flag between two at the host's word, which is far away.
constexpr uint32_t kLooks = 128;

__device__ inline PeerState& StateOf(const PeerWorld& world, int rank) {
  return *reinterpret_cast<PeerState*>(world.memory[rank]);
}

__device__ inline void Signal(uint64_t* flag, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ inline void Leave(const PeerWorld& world, volatile uint32_t* why) {
  *why = 1;
  StateOf(world, world.rank).closed = 1;
  __threadfence_system();
}

// False where the wait was ended, or the other rank's operation is another.
__device__ inline bool Await(const PeerWorld& world, const uint64_t* flag, uint32_t step,
                             uint32_t signature) {
  for (uint32_t looks = 1;; ++looks) {
    uint64_t value = 0;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    if (value >> 32 == step) {
      if (static_cast<uint32_t>(value) == signature) return true;
      Leave(world, &world.control->differs);
      return false;
    }
    if (looks % kLooks == 0) {
      if (*static_cast<volatile uint32_t*>(&world.control->closed) != 0) {
        Leave(world, &world.control->left);
        return false;
      }
      __nanosleep(200);
    }
  }
}

// Where a block stands among the operations of the group. All blocks of a kernel count alike, also
// those that have nothing to do.
struct Turn {
  const PeerWorld& world;
  uint32_t signature;
  uint32_t step;
  uint32_t slice;

  __device__ Turn(const PeerWorld& of, uint32_t operation)
      : world(of),
        signature(operation),
        step(StateOf(of, of.rank).group_steps[blockIdx.x]),
        slice(StateOf(of, of.rank).group_slices[blockIdx.x]) {}

  __device__ bool closed() const { return StateOf(world, world.rank).closed != 0; }

  // Two windows in turn: who has met the others in one slice knows that nobody reads the one before
  // any more.
  __device__ std::byte* Window(int rank) const {
    return world.memory[rank] + kPeerStateBytes + (slice & 1) * kPeerSliceBytes;
  }

  // What this block has written before, all ranks' blocks see behind it.
  __device__ bool Meet() {
    ++step;
    __syncthreads();
    bool met = true;
    const auto peer = static_cast<int>(threadIdx.x);
    if (peer < world.size && peer != world.rank) {
      Signal(&StateOf(world, peer).group_flags[step & 1][world.rank][blockIdx.x],
             static_cast<uint64_t>(step) << 32 | signature);
      met = Await(world, &StateOf(world, world.rank).group_flags[step & 1][threadIdx.x][blockIdx.x],
                  step, signature);
    }
    return __syncthreads_and(met ? 1 : 0) != 0;
  }

  // By the last thing that a block does.
  __device__ void Finish(uint32_t steps, uint32_t slices) const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    StateOf(world, world.rank).group_steps[blockIdx.x] += steps;
    StateOf(world, world.rank).group_slices[blockIdx.x] += slices;
  }
};

struct Range {
  int64_t begin;
  int64_t end;

  __device__ int64_t size() const { return end - begin; }
};

// Part `index` of [begin, end), cut at multiples of `unit` from `begin` on.
__device__ inline Range PartOf(const Range& whole, int index, int parts, int64_t unit) {
  const int64_t units = (whole.size() + unit - 1) / unit;
  return {whole.begin + min(whole.size(), units * index / parts * unit),
          whole.begin + min(whole.size(), units * (index + 1) / parts * unit)};
}

// What lies before `left` of a part of [0, full). Cut so, a block has the same place of the windows
// in all slices of an operation, the last one too, which may be shorter: who has met a block of
// another rank in the next slice knows that it reads nothing there any more, and knows that of no
// other block.
__device__ inline Range PartBefore(int64_t left, int64_t full, int index, int parts, int64_t unit) {
  const Range part = PartOf({0, full}, index, parts, unit);
  left = max(left, int64_t{0});
  return {min(part.begin, left), min(part.end, left)};
}

// By the whole block. Past the first cache, which does not know what other GPUs write.
template <typename Unit>
__device__ void CopyUnits(Unit* to, const Unit* from, int64_t count) {
  for (int64_t first = threadIdx.x; first < count; first += kThreads * kAtOnce) {
    Unit units[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kThreads < count) units[i] = __ldcg(from + first + i * kThreads);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kThreads < count) to[first + i * kThreads] = units[i];
  }
}

__device__ inline void CopyBytes(std::byte* to, const std::byte* from, int64_t bytes) {
  const uintptr_t places = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  int64_t done = 0;
  if (places % 16 == 0) {
    done = bytes / 16 * 16;
    CopyUnits(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4*>(from), done / 16);
  } else if (places % 4 == 0) {
    done = bytes / 4 * 4;
    CopyUnits(reinterpret_cast<uint32_t*>(to), reinterpret_cast<const uint32_t*>(from), done / 4);
  }
  CopyUnits(reinterpret_cast<unsigned char*>(to + done),
            reinterpret_cast<const unsigned char*>(from + done), bytes - done);
}

// Of all ranks: where their blocks begin and how large they are.
struct Blocks {
  PeerBlockSizes begin;
  PeerBlockSizes size;
};

inline int BlocksFor(int64_t bytes) {
  return static_cast<int>(
      std::clamp<int64_t>((bytes + kBytesPerBlock - 1) / kBytesPerBlock, 1, kPeerBlocks));
}

inline Blocks BlocksOf(const PeerBlockSizes& sizes, int ranks) {
  Blocks blocks = {};
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    blocks.begin.of[rank] = begin;
    blocks.size.of[rank] = sizes.of[rank];
    begin += sizes.of[rank];
  }
  return blocks;
}

// Brings kernels to the device; the first error.
template <typename... Kernels>
cudaError_t LoadKernels(Kernels*... kernels) {
  cudaFuncAttributes attributes;
  cudaError_t first = cudaSuccess;
  for (const cudaError_t error : {cudaFuncGetAttributes(&attributes, kernels)...})
    if (first == cudaSuccess) first = error;
  return first;
}

inline int64_t Largest(const PeerBlockSizes& sizes, int ranks) {
  return *std::max_element(sizes.of, sizes.of + ranks);
}

}  // namespace longspan::backend::cuda
