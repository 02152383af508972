#include <algorithm>

#include "backend/cuda/device_types.cuh"
#include "backend/cuda/peer_kernels.h"

namespace longspan::backend::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kAtOnce = 4;  // loads of a thread on their way
constexpr int64_t kBytesPerBlock = int64_t{8} << 10;
// Looks at a flag between two at the host's word, which is far away.
constexpr uint32_t kLooks = 128;

__device__ PeerState& StateOf(const PeerWorld& world, int rank) {
  return *reinterpret_cast<PeerState*>(world.memory[rank]);
}

__device__ void Signal(uint64_t* flag, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ void Leave(const PeerWorld& world, volatile uint32_t* why) {
  *why = 1;
  StateOf(world, world.rank).closed = 1;
  __threadfence_system();
}

// False where the wait was ended, or the other rank's operation is another.
__device__ bool Await(const PeerWorld& world, const uint64_t* flag, uint32_t step,
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
__device__ Range PartOf(const Range& whole, int index, int parts, int64_t unit) {
  const int64_t units = (whole.size() + unit - 1) / unit;
  return {whole.begin + min(whole.size(), units * index / parts * unit),
          whole.begin + min(whole.size(), units * (index + 1) / parts * unit)};
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

__device__ void CopyBytes(std::byte* to, const std::byte* from, int64_t bytes) {
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

__device__ float LoadFar(const float* from) { return __ldcg(from); }
__device__ float LoadFar(const __nv_bfloat16* from) { return __bfloat162float(__ldcg(from)); }

// kCount elements of another rank, at an address that is a multiple of their size.
template <typename T, int kCount>
__device__ void ReadFar(const T* from, float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    values[0] = LoadFar(from);
  } else {
    static_assert(kCount * sizeof(T) == 16);
    alignas(16) T elements[kCount];
    *reinterpret_cast<uint4*>(elements) = __ldcg(reinterpret_cast<const uint4*>(from));
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = Load(elements + i);
  }
}

template <typename T, int kCount>
__device__ void WriteElements(T* to, const float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    Store(to, values[0]);
  } else {
    alignas(16) T elements[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) Store(elements + i, values[i]);
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(elements);
  }
}

// The sums of elements `range` of all ranks' windows, from place `window_first` there on, in the
// order of the ranks, in f32. To `out`, and where `kept` is not null there too.
template <typename T, int kCount>
__device__ void SumUnits(const Turn& turn, int64_t first, int64_t count, T* out, T* kept) {
  for (int64_t begin = static_cast<int64_t>(threadIdx.x) * kCount; begin < count;
       begin += int64_t{kThreads} * kCount * kAtOnce) {
    float sums[kAtOnce][kCount];
    for (int rank = 0; rank < turn.world.size; ++rank) {
      const T* from = reinterpret_cast<const T*>(turn.Window(rank)) + first;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t at = begin + int64_t{i} * kThreads * kCount;
        if (at >= count) continue;
        float values[kCount];
        ReadFar<T, kCount>(from + at, values);
#pragma unroll
        for (int j = 0; j < kCount; ++j)
          sums[i][j] = rank == 0 ? values[j] : sums[i][j] + values[j];
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t at = begin + int64_t{i} * kThreads * kCount;
      if (at >= count) continue;
      WriteElements<T, kCount>(out + at, sums[i]);
      if (kept != nullptr) WriteElements<T, kCount>(kept + at, sums[i]);
    }
  }
}

// Of elements [first, first + count) of the windows; `first` is a multiple of what a thread reads
// at once.
template <typename T>
__device__ void Sum(const Turn& turn, int64_t first, int64_t count, T* out, T* kept) {
  constexpr int kWide = 16 / sizeof(T);
  int64_t done = 0;
  if (reinterpret_cast<uintptr_t>(out) % 16 == 0) {
    done = count / kWide * kWide;
    SumUnits<T, kWide>(turn, first, done, out, kept);
  }
  SumUnits<T, 1>(turn, first + done, count - done, out + done,
                 kept == nullptr ? nullptr : kept + done);
}

template <typename T>
struct Reduction {
  PeerWorld world;
  uint32_t signature;
  T* data;
  int64_t count;
  bool two_steps;
  int blocks;  // that have a part

  static constexpr int64_t kSlice = kPeerSliceBytes / sizeof(T);
  static constexpr int64_t kUnit = 128 / sizeof(T);  // at whose multiples parts are cut
};

template <typename T>
__device__ bool ReduceSlice(const Reduction<T>& p, Turn& turn, T* data, const Range& part) {
  const int rank = p.world.rank;
  T* own = reinterpret_cast<T*>(turn.Window(rank));
  CopyBytes(reinterpret_cast<std::byte*>(own + part.begin),
            reinterpret_cast<const std::byte*>(data + part.begin), part.size() * sizeof(T));
  if (!turn.Meet()) return false;
  if (!p.two_steps) {
    Sum<T>(turn, part.begin, part.size(), data + part.begin, nullptr);
    return true;
  }
  // A rank's share of its own window is read by nobody else: the sum takes its place.
  const Range share = PartOf(part, rank, p.world.size, p.kUnit);
  Sum<T>(turn, share.begin, share.size(), data + share.begin, own + share.begin);
  if (!turn.Meet()) return false;
  for (int i = 1; i < p.world.size; ++i) {
    const int peer = (rank + i) % p.world.size;
    const Range theirs = PartOf(part, peer, p.world.size, p.kUnit);
    CopyBytes(reinterpret_cast<std::byte*>(data + theirs.begin),
              reinterpret_cast<const std::byte*>(reinterpret_cast<const T*>(turn.Window(peer)) +
                                                 theirs.begin),
              theirs.size() * sizeof(T));
  }
  return true;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AllReduceKernel(const __grid_constant__ Reduction<T> p) {
  Turn turn(p.world, p.signature);
  if (turn.closed()) return;
  const auto slices = static_cast<uint32_t>((p.count + p.kSlice - 1) / p.kSlice);
  if (static_cast<int>(blockIdx.x) < p.blocks) {
    for (int64_t first = 0; first < p.count; first += p.kSlice, ++turn.slice) {
      const Range part = PartOf({0, min(p.kSlice, p.count - first)}, static_cast<int>(blockIdx.x),
                                p.blocks, p.kUnit);
      if (!ReduceSlice(p, turn, p.data + first, part)) return;
    }
  }
  turn.Finish(p.two_steps ? 2 * slices : slices, slices);
}

// Of all ranks: where their blocks begin and how large they are.
struct Blocks {
  PeerBlockSizes begin;
  PeerBlockSizes size;
};

template <typename T>
struct Scatter {
  PeerWorld world;
  uint32_t signature;
  T* data;
  Blocks blocks;
  uint32_t slices;

  __host__ __device__ int64_t segment() const {
    return kPeerSliceBytes / static_cast<int64_t>(sizeof(T)) / world.size / 128 * 128;
  }
};

// A window is divided by the rank that gets the sum.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ReduceScatterKernel(const __grid_constant__ Scatter<T> p) {
  Turn turn(p.world, p.signature);
  if (turn.closed()) return;
  const int64_t segment = p.segment();
  for (uint32_t slice = 0; slice < p.slices; ++slice, ++turn.slice) {
    const int64_t first = slice * segment;
    const auto part_of = [&](int rank) {
      const int64_t left = min(segment, p.blocks.size.of[rank] - first);
      return PartOf({0, left > 0 ? left : 0}, static_cast<int>(blockIdx.x),
                    static_cast<int>(gridDim.x), 128 / static_cast<int64_t>(sizeof(T)));
    };
    T* own = reinterpret_cast<T*>(turn.Window(p.world.rank));
    for (int peer = 0; peer < p.world.size; ++peer) {
      const Range part = part_of(peer);
      CopyBytes(
          reinterpret_cast<std::byte*>(own + peer * segment + part.begin),
          reinterpret_cast<const std::byte*>(p.data + p.blocks.begin.of[peer] + first + part.begin),
          part.size() * sizeof(T));
    }
    if (!turn.Meet()) return;
    const Range part = part_of(p.world.rank);
    T* out = p.data + p.blocks.begin.of[p.world.rank] + first + part.begin;
    Sum<T>(turn, p.world.rank * segment + part.begin, part.size(), out, nullptr);
  }
  turn.Finish(p.slices, p.slices);
}

struct Gather {
  PeerWorld world;
  uint32_t signature;
  std::byte* all;
  Blocks blocks;
  uint32_t slices;
  int parts;  // blocks of threads that have one
};

__global__ void __launch_bounds__(kThreads) AllGatherKernel(const __grid_constant__ Gather p) {
  Turn turn(p.world, p.signature);
  if (turn.closed()) return;
  if (static_cast<int>(blockIdx.x) < p.parts) {
    for (uint32_t slice = 0; slice < p.slices; ++slice, ++turn.slice) {
      const int64_t first = slice * kPeerSliceBytes;
      const auto part_of = [&](int rank) {
        const int64_t left = min(kPeerSliceBytes, p.blocks.size.of[rank] - first);
        return PartOf({0, left > 0 ? left : 0}, static_cast<int>(blockIdx.x), p.parts, 128);
      };
      const auto place_of = [&](int rank) { return p.all + p.blocks.begin.of[rank] + first; };
      const int rank = p.world.rank;
      const Range own = part_of(rank);
      CopyBytes(turn.Window(rank) + own.begin, place_of(rank) + own.begin, own.size());
      if (!turn.Meet()) return;
      for (int i = 1; i < p.world.size; ++i) {
        const int peer = (rank + i) % p.world.size;
        const Range part = part_of(peer);
        CopyBytes(place_of(peer) + part.begin, turn.Window(peer) + part.begin, part.size());
      }
    }
  }
  turn.Finish(p.slices, p.slices);
}

struct Exchange {
  PeerWorld world;
  PeerMessages messages;

  __host__ __device__ int64_t segment() const { return kPeerSliceBytes / world.size / 256 * 256; }
  // What rank `from` has for rank `to` in a step.
  __device__ std::byte* Window(int from, int to, uint32_t step) const {
    return world.memory[from] + kPeerStateBytes + (2 + (step & 1)) * kPeerSliceBytes +
           to * segment();
  }
};

__device__ bool MeetPeer(const PeerWorld& world, int peer, uint32_t step, uint32_t signature) {
  __syncthreads();
  bool met = true;
  if (threadIdx.x == 0) {
    Signal(&StateOf(world, peer).pair_flags[step & 1][world.rank][blockIdx.x],
           static_cast<uint64_t>(step) << 32 | signature);
    met = Await(world, &StateOf(world, world.rank).pair_flags[step & 1][peer][blockIdx.x], step,
                signature);
  }
  return __syncthreads_and(met ? 1 : 0) != 0;
}

// Every two ranks by themselves: only they know how much they have for each other.
__global__ void __launch_bounds__(kThreads) AllToAllKernel(const __grid_constant__ Exchange p) {
  const auto peer = static_cast<int>(blockIdx.y);
  const int rank = p.world.rank;
  const std::byte* outgoing = p.messages.outgoing[peer];
  std::byte* incoming = p.messages.incoming[peer];
  const auto part_of = [&](int64_t bytes) {
    return PartOf({0, bytes > 0 ? bytes : 0}, static_cast<int>(blockIdx.x),
                  static_cast<int>(gridDim.x), 128);
  };
  if (peer == rank) {
    const Range part = part_of(p.messages.outgoing_bytes[rank]);
    CopyBytes(incoming + part.begin, outgoing + part.begin, part.size());
    return;
  }
  PeerState& own = StateOf(p.world, rank);
  if (own.closed != 0) return;
  const int64_t segment = p.segment();
  const int64_t longest = max(p.messages.outgoing_bytes[peer], p.messages.incoming_bytes[peer]);
  uint32_t step = own.pair_steps[peer][blockIdx.x];
  for (int64_t first = 0; first < longest; first += segment) {
    ++step;
    const Range sent = part_of(min(segment, p.messages.outgoing_bytes[peer] - first));
    CopyBytes(p.Window(rank, peer, step) + sent.begin, outgoing + first + sent.begin, sent.size());
    if (!MeetPeer(p.world, peer, step, p.messages.signatures[peer])) return;
    const Range got = part_of(min(segment, p.messages.incoming_bytes[peer] - first));
    CopyBytes(incoming + first + got.begin, p.Window(peer, rank, step) + got.begin, got.size());
  }
  __syncthreads();
  if (threadIdx.x == 0) own.pair_steps[peer][blockIdx.x] = step;
}

int BlocksFor(int64_t bytes) {
  return static_cast<int>(
      std::clamp<int64_t>((bytes + kBytesPerBlock - 1) / kBytesPerBlock, 1, kPeerBlocks));
}

Blocks BlocksOf(const PeerBlockSizes& sizes, int ranks) {
  Blocks blocks = {};
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    blocks.begin.of[rank] = begin;
    blocks.size.of[rank] = sizes.of[rank];
    begin += sizes.of[rank];
  }
  return blocks;
}

int64_t Largest(const PeerBlockSizes& sizes, int ranks) {
  return *std::max_element(sizes.of, sizes.of + ranks);
}

template <typename T>
void LaunchScatter(cudaStream_t stream, const PeerWorld& world, uint32_t signature, void* data,
                   const PeerBlockSizes& counts) {
  Scatter<T> scatter = {world, signature, static_cast<T*>(data), BlocksOf(counts, world.size), 0};
  const int64_t segment = scatter.segment();
  scatter.slices = static_cast<uint32_t>((Largest(counts, world.size) + segment - 1) / segment);
  ReduceScatterKernel<T><<<kPeerBlocks, kThreads, 0, stream>>>(scatter);
}

template <typename T>
void LaunchReduce(cudaStream_t stream, const PeerWorld& world, uint32_t signature, void* data,
                  int64_t count, bool two_steps) {
  const int64_t bytes = std::min<int64_t>(count * sizeof(T), kPeerSliceBytes);
  AllReduceKernel<T><<<kPeerBlocks, kThreads, 0, stream>>>(
      {world, signature, static_cast<T*>(data), count, two_steps, BlocksFor(bytes)});
}

}  // namespace

void PeerAllReduce(cudaStream_t stream, const PeerWorld& world, uint32_t signature,
                   tensor::DType type, void* data, int64_t count, bool two_steps) {
  if (type == tensor::DType::kF32)
    LaunchReduce<float>(stream, world, signature, data, count, two_steps);
  else
    LaunchReduce<__nv_bfloat16>(stream, world, signature, data, count, two_steps);
}

void PeerReduceScatter(cudaStream_t stream, const PeerWorld& world, uint32_t signature,
                       tensor::DType type, void* data, const PeerBlockSizes& counts) {
  if (type == tensor::DType::kF32)
    LaunchScatter<float>(stream, world, signature, data, counts);
  else
    LaunchScatter<__nv_bfloat16>(stream, world, signature, data, counts);
}

void PeerAllGather(cudaStream_t stream, const PeerWorld& world, uint32_t signature, std::byte* all,
                   const PeerBlockSizes& sizes) {
  const int64_t largest = Largest(sizes, world.size);
  AllGatherKernel<<<kPeerBlocks, kThreads, 0, stream>>>(
      {world, signature, all, BlocksOf(sizes, world.size),
       static_cast<uint32_t>((largest + kPeerSliceBytes - 1) / kPeerSliceBytes),
       BlocksFor(std::min(largest, kPeerSliceBytes))});
}

void PeerAllToAll(cudaStream_t stream, const PeerWorld& world, const PeerMessages& messages) {
  const int blocks = std::clamp(kPeerBlocks / world.size, 4, kMostPairBlocks);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(world.size));
  AllToAllKernel<<<grid, kThreads, 0, stream>>>({world, messages});
}

cudaError_t LoadPeerKernels() {
  cudaFuncAttributes attributes;
  cudaError_t first = cudaSuccess;
  const auto load = [&](auto* kernel) {
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (first == cudaSuccess) first = error;
  };
  load(AllReduceKernel<float>);
  load(AllReduceKernel<__nv_bfloat16>);
  load(ReduceScatterKernel<float>);
  load(ReduceScatterKernel<__nv_bfloat16>);
  load(AllGatherKernel);
  load(AllToAllKernel);
  return first;
}

}  // namespace longspan::backend::cuda
