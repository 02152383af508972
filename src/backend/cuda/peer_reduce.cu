// Sums over ranks.
#include "backend/cuda/peer_turn.cuh"

namespace longspan::backend::cuda {
namespace {

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

// The sums of elements [first, first + count) of all ranks' windows, in the order of the ranks, in
// f32. To `out`, and where `kept` is not null there too.
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
      const Range part = PartBefore(p.count - first, min(p.kSlice, p.count),
                                    static_cast<int>(blockIdx.x), p.blocks, p.kUnit);
      if (!ReduceSlice(p, turn, p.data + first, part)) return;
    }
  }
  turn.Finish(p.two_steps ? 2 * slices : slices, slices);
}

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
      const int64_t size = p.blocks.size.of[rank];
      return PartBefore(size - first, min(segment, size), static_cast<int>(blockIdx.x),
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

cudaError_t LoadPeerSums() {
  return LoadKernels(AllReduceKernel<float>, AllReduceKernel<__nv_bfloat16>,
                     ReduceScatterKernel<float>, ReduceScatterKernel<__nv_bfloat16>);
}

}  // namespace longspan::backend::cuda
