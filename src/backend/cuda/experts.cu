// expert_order: a stable counting sort on the device, the same for any number of blocks; and
// expert_combine.
#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/stream.h"
#include "tensor/workspace.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
// Pairs of a block; what fits into one block needs one launch.
constexpr int64_t kBlockPairs = 2048;

int64_t BlocksOf(int64_t pairs) { return (pairs + kBlockPairs - 1) / kBlockPairs; }

struct Pairs {
  const int32_t* ids;  // [rows, choices], rows a stride apart
  int64_t ids_stride;
  int64_t count;
  int64_t choices;
  int experts;
  int32_t* begin;
  int32_t* source_rows;
  int32_t* places;
  int64_t places_stride;

  __device__ int expert(int64_t pair) const {
    return ids[pair / choices * ids_stride + pair % choices];
  }
  // -1: nowhere.
  __device__ void Place(int64_t pair, int place) const {
    if (place >= 0) source_rows[place] = static_cast<int32_t>(pair / choices);
    places[pair / choices * places_stride + pair % choices] = place;
  }
};

// This block's pairs of every expert, into shared memory.
__device__ void CountPairs(const Pairs& p, int64_t first, int64_t end, int* counts) {
  for (int expert = threadIdx.x; expert < p.experts; expert += kThreads) counts[expert] = 0;
  __syncthreads();
  for (int64_t pair = first + threadIdx.x; pair < end; pair += kThreads)
    if (const int expert = p.expert(pair); expert >= 0) atomicAdd(counts + expert, 1);
  __syncthreads();
}

// values[e] becomes the sum of those before e; returns that of all. By the whole block.
__device__ int ScanExclusive(int* values, int size) {
  __shared__ int warp_sums[kWarps];
  __shared__ int before;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) before = 0;
  for (int first = 0; first < size; first += kThreads) {
    const int index = first + static_cast<int>(threadIdx.x);
    const int own = index < size ? values[index] : 0;
    int sum = own;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(kWholeWarp, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int earlier = before;
    for (int i = 0; i < warp; ++i) earlier += warp_sums[i];
    if (index < size) values[index] = earlier + sum - own;
    __syncthreads();
    if (threadIdx.x == kThreads - 1) before = earlier + sum;
    __syncthreads();
  }
  return before;
}

// Puts the block's pairs where `next` (in shared memory) says, in order. `warp_counts` is
// [kWarps][experts].
__device__ void PlacePairs(const Pairs& p, int64_t first, int64_t end, int* next,
                           int* warp_counts) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int64_t round = first; round < end; round += kThreads) {
    for (int i = threadIdx.x; i < kWarps * p.experts; i += kThreads) warp_counts[i] = 0;
    __syncthreads();
    const int64_t pair = round + threadIdx.x;
    const int expert = pair < end ? p.expert(pair) : -1;
    const unsigned alike = __match_any_sync(kWholeWarp, expert);
    const int rank = __popc(alike & ((1u << lane) - 1));
    if (expert >= 0 && rank == 0) warp_counts[warp * p.experts + expert] = __popc(alike);
    __syncthreads();
    if (expert >= 0) {
      int place = next[expert] + rank;
      for (int i = 0; i < warp; ++i) place += warp_counts[i * p.experts + expert];
      p.Place(pair, place);
    } else if (pair < end) {
      p.Place(pair, -1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < p.experts; e += kThreads)
      for (int i = 0; i < kWarps; ++i) next[e] += warp_counts[i * p.experts + e];
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) OrderInOneBlock(const Pairs p) {
  extern __shared__ int shared[];
  CountPairs(p, 0, p.count, shared);
  const int all = ScanExclusive(shared, p.experts);
  for (int expert = threadIdx.x; expert < p.experts; expert += kThreads)
    p.begin[expert] = shared[expert];
  if (threadIdx.x == 0) p.begin[p.experts] = all;
  PlacePairs(p, 0, p.count, shared, shared + p.experts);
}

// counts[expert][block].
__global__ void __launch_bounds__(kThreads) CountKernel(const Pairs p, int32_t* counts) {
  extern __shared__ int shared[];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockPairs;
  CountPairs(p, first, min(first + kBlockPairs, p.count), shared);
  for (int expert = threadIdx.x; expert < p.experts; expert += kThreads)
    counts[static_cast<int64_t>(expert) * gridDim.x + blockIdx.x] = shared[expert];
}

// Counts become where every block's pairs of an expert begin.
__global__ void __launch_bounds__(kThreads)
    BeginKernel(const Pairs p, int32_t* counts, int blocks) {
  extern __shared__ int shared[];
  for (int expert = threadIdx.x; expert < p.experts; expert += kThreads) {
    int sum = 0;
    for (int block = 0; block < blocks; ++block)
      sum += counts[static_cast<int64_t>(expert) * blocks + block];
    shared[expert] = sum;
  }
  __syncthreads();
  const int all = ScanExclusive(shared, p.experts);
  for (int expert = threadIdx.x; expert < p.experts; expert += kThreads) {
    int next = shared[expert];
    p.begin[expert] = next;
    for (int block = 0; block < blocks; ++block) {
      int32_t& entry = counts[static_cast<int64_t>(expert) * blocks + block];
      const int count = entry;
      entry = next;
      next += count;
    }
  }
  if (threadIdx.x == 0) p.begin[p.experts] = all;
}

__global__ void __launch_bounds__(kThreads) PlaceKernel(const Pairs p, const int32_t* begins) {
  extern __shared__ int shared[];
  for (int expert = threadIdx.x; expert < p.experts; expert += kThreads)
    shared[expert] = begins[static_cast<int64_t>(expert) * gridDim.x + blockIdx.x];
  __syncthreads();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockPairs;
  PlacePairs(p, first, min(first + kBlockPairs, p.count), shared, shared + p.experts);
}

struct Sums {
  const void* x;
  int64_t x_stride;
  const int32_t* places;
  int64_t places_stride;
  const float* weights;
  int64_t weights_stride;
  void* out;
  int64_t out_stride;
  int64_t rows;
  int64_t pieces;  // of a row
  int choices;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(256) CombineKernel(const Sums p) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const int64_t row = index / p.pieces;
  if (row >= p.rows) return;
  const int64_t column = index % p.pieces * kCount;
  const T* x = static_cast<const T*>(p.x) + column;
  Values<float, kCount> sum;
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum.v[i] = 0.0f;
#pragma unroll 4
  for (int choice = 0; choice < p.choices; ++choice) {
    const int place = p.places[row * p.places_stride + choice];
    if (place < 0) continue;
    const float weight = p.weights[row * p.weights_stride + choice];
    Values<T, kCount> piece;
    piece.Read(x + place * p.x_stride);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum.v[i] += weight * piece.v[i];
  }
  Values<T, kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.v[i] = sum.v[i];
  result.Write(static_cast<T*>(p.out) + row * p.out_stride + column);
}

template <typename T, int kCount>
void LaunchCombine(cudaStream_t stream, Sums params, int64_t columns) {
  params.pieces = columns / kCount;
  const int64_t blocks = (params.rows * params.pieces + 255) / 256;
  CombineKernel<T, kCount><<<static_cast<unsigned>(blocks), 256, 0, stream>>>(params);
}

}  // namespace

int64_t ExpertWorkspaceBytes(int, const ops::WorkspaceShape& shape) {
  const int64_t blocks = BlocksOf(shape.rows * shape.experts_per_token);
  return tensor::Workspace::PaddedBytes(blocks * shape.experts * 4);
}

void ExpertOrder(ExecutionContext& context, const ops::ExpertOrderArgs& args) {
  const Pairs pairs = {.ids = args.expert_ids.data<int32_t>(),
                       .ids_stride = args.expert_ids.stride(0),
                       .count = args.expert_ids.elements(),
                       .choices = std::max<int64_t>(1, args.expert_ids.size(1)),
                       .experts = static_cast<int>(args.expert_begin.size(0)) - 1,
                       .begin = args.expert_begin.data<int32_t>(),
                       .source_rows = args.source_rows.data<int32_t>(),
                       .places = args.sorted_places.data<int32_t>(),
                       .places_stride = args.sorted_places.stride(0)};
  const cudaStream_t stream = StreamOf(context);
  const size_t row_bytes = static_cast<size_t>(pairs.experts) * sizeof(int);
  const size_t place_bytes = row_bytes * (kWarps + 1);
  LONGSPAN_CHECK(place_bytes <= size_t{48} << 10, "expert_order: {} experts are too many",
                 pairs.experts);
  const int64_t blocks = BlocksOf(pairs.count);
  if (blocks <= 1) {
    OrderInOneBlock<<<1, kThreads, place_bytes, stream>>>(pairs);
    NoteLaunch(context, "expert_order");
    return;
  }
  tensor::Workspace::Scope scope(context.workspace);
  auto* counts = scope.Take(DType::kI32, {pairs.experts, blocks}).data<int32_t>();
  const auto grid = static_cast<unsigned>(blocks);
  CountKernel<<<grid, kThreads, row_bytes, stream>>>(pairs, counts);
  BeginKernel<<<1, kThreads, row_bytes, stream>>>(pairs, counts, static_cast<int>(blocks));
  PlaceKernel<<<grid, kThreads, place_bytes, stream>>>(pairs, counts);
  NoteLaunch(context, "expert_order");
}

void ExpertCombine(ExecutionContext& context, const ops::ExpertCombineArgs& args) {
  if (args.out.elements() == 0) return;
  const int64_t columns = args.out.size(1);
  const Sums params = {.x = args.x.raw(),
                       .x_stride = args.x.stride(0),
                       .places = args.sorted_places.data<int32_t>(),
                       .places_stride = args.sorted_places.stride(0),
                       .weights = args.expert_weights.data<float>(),
                       .weights_stride = args.expert_weights.stride(0),
                       .out = args.out.raw(),
                       .out_stride = args.out.stride(0),
                       .rows = args.out.size(0),
                       .pieces = 0,
                       .choices = static_cast<int>(args.sorted_places.size(1))};
  const cudaStream_t stream = StreamOf(context);
  const bool vectors =
      columns % 8 == 0 && IsVectorReadable(args.x, columns) && IsVectorReadable(args.out, columns);
  if (args.x.dtype() == DType::kF32)
    vectors ? LaunchCombine<float, 8>(stream, params, columns)
            : LaunchCombine<float, 1>(stream, params, columns);
  else
    vectors ? LaunchCombine<__nv_bfloat16, 8>(stream, params, columns)
            : LaunchCombine<__nv_bfloat16, 1>(stream, params, columns);
  NoteLaunch(context, "expert_combine");
}

}  // namespace longspan::backend::cuda
