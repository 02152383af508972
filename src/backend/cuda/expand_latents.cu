#include "backend/cuda/expand_latents.cuh"
#include "backend/cuda/stream.h"
#include "backend/cuda/tensor_core.cuh"

namespace longspan::backend::cuda {
namespace {

// Positions of the block that the slice has: one past the last.
__device__ int32_t EndOf(const ExpandArgs& args) {
  const int32_t rows = args.tables.slice_row_begin[1] - args.tables.slice_row_begin[0];
  if (rows == 0) return 0;
  const int32_t first = args.tables.slice_row_begin[0] - *args.tables.first_row;
  return min(args.tables.positions[first + rows - 1] + 1, args.last_key);
}

// What a block of threads makes: columns of the keys or of the values of one head.
struct Product {
  const void* weights;  // [columns, rank]
  int columns;
  int first_column;
  int stored_columns;  // with zeros
  int64_t stride;
  int64_t first_row;  // of the head, in `out`
  void* out;
};
__device__ Product ProductOf(const ExpandArgs& args, int index, int head, int width) {
  const int64_t rows = args.last_key - args.first_key;
  const int key_blocks = (args.nope + width - 1) / width;
  if (index < key_blocks)
    return {args.key_weights[head], args.nope,   index * width, args.nope,
            args.key_stride,        head * rows, args.keys};
  return {args.value_weights[head],
          args.value,
          (index - key_blocks) * width,
          static_cast<int>(args.value_stride),
          args.value_stride,
          head * rows,
          args.values};
}
int ProductBlocks(const ExpandArgs& args, int width) {
  return (args.nope + width - 1) / width + (args.value + width - 1) / width;
}

// [kRows, kColumns] = latents [kRows, rank] weights^T on tensor cores: eight warps, each 32 rows of
// 64 columns.
constexpr int kRows = 128;
constexpr int kColumns = 128;
constexpr int kDepth = 64;  // of the rank at once
constexpr int kStages = 3;
constexpr int kThreads = 256;
constexpr int kTileBytes = kRows * kDepth * 2;
constexpr int kSharedBytes = 2 * kStages * kTileBytes;
static_assert(kRows == kColumns);

__global__ void __launch_bounds__(kThreads, 2)
    TensorExpandKernel(const __grid_constant__ ExpandArgs args) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ int64_t places[kRows];
  const int32_t end = EndOf(args);
  const int32_t first = args.first_key + static_cast<int32_t>(blockIdx.x) * kRows;
  if (first >= end) return;
  const int tid = static_cast<int>(threadIdx.x);
  const Product product =
      ProductOf(args, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z), kColumns);
  if (tid < kRows)
    places[tid] = first + tid < end ? args.pages.RowOf(args.tables.page_table, 0, first + tid) : -1;
  __syncthreads();
  const auto tile = [&](int stage, int which) -> SwizzledTile<kDepth> {
    return {SharedAddress(memory) + (2 * stage + which) * kTileBytes};
  };
  const auto load = [&](int step) {
    const int depth = step * kDepth;
    if (depth < args.rank) {
      constexpr int kChunks = kDepth / 8;
#pragma unroll
      for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
        const int index = tid + i * kThreads;
        const int row = index / kChunks;
        const int column = depth + index % kChunks * 8;
        const int64_t place = places[row];
        const bool inside = column < args.rank;
        const bool latent = place >= 0 && inside;
        CopyAsync16(
            tile(step % kStages, 0).At(row, index % kChunks),
            static_cast<const Bf16*>(args.latents) + (latent ? place * args.rank + column : 0),
            latent);
        const int feature = product.first_column + row;
        const bool weight = feature < product.columns && inside;
        CopyAsync16(tile(step % kStages, 1).At(row, index % kChunks),
                    static_cast<const Bf16*>(product.weights) +
                        (weight ? static_cast<int64_t>(feature) * args.rank + column : 0),
                    weight);
      }
    }
    CommitCopies();
  };
  for (int step = 0; step + 1 < kStages; ++step) load(step);
  const int lane = tid % 32;
  const int row = tid / 32 % 4 * 32;
  const int column = tid / 128 * 64;
  float sums[2][8][4] = {};
  const int steps = (args.rank + kDepth - 1) / kDepth;
  for (int step = 0; step < steps; ++step) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    const auto latents = tile(step % kStages, 0);
    const auto weights = tile(step % kStages, 1);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[2][4];
      latents.LoadA(a[0], row, k, lane);
      latents.LoadA(a[1], row + 16, k, lane);
#pragma unroll
      for (int n = 0; n < 64; n += 16) {
        uint32_t b[4];
        weights.LoadB(b, column + n, k, lane);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          MultiplyAdd(sums[m][n / 8], a[m], b[0], b[1]);
          MultiplyAdd(sums[m][n / 8 + 1], a[m], b[2], b[3]);
        }
      }
    }
  }
  auto* out = static_cast<Bf16*>(product.out);
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t position = first + row + m * 16 + half * 8 + lane / 4;
      if (position >= end) continue;
      Bf16* to = out + (product.first_row + position - args.first_key) * product.stride;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int place = product.first_column + column + n * 8 + lane % 4 * 2;
        if (place < product.stored_columns)
          *reinterpret_cast<uint32_t*>(to + place) =
              PackBf16(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
      }
    }
}

// The same in f32, for all types and sizes: tiles of 32 by 32, four elements to a thread.
constexpr int kPlain = 32;

template <typename Cache, typename Out>
__global__ void __launch_bounds__(kThreads)
    PlainExpandKernel(const __grid_constant__ ExpandArgs args) {
  __shared__ float latents[kPlain][kPlain + 1];
  __shared__ float weights[kPlain][kPlain + 1];
  const int32_t end = EndOf(args);
  const int32_t first = args.first_key + static_cast<int32_t>(blockIdx.x) * kPlain;
  if (first >= end) return;
  const Product product =
      ProductOf(args, static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z), kPlain);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float sums[4] = {0, 0, 0, 0};
  for (int depth = 0; depth < args.rank; depth += kPlain) {
    __syncthreads();
    for (int row = warp; row < kPlain; row += kThreads / 32) {
      const bool inside = depth + lane < args.rank;
      latents[row][lane] = 0;
      if (inside && first + row < end) {
        const int64_t place = args.pages.RowOf(args.tables.page_table, 0, first + row);
        latents[row][lane] =
            ToFloat(static_cast<const Cache*>(args.latents)[place * args.rank + depth + lane]);
      }
      const int feature = product.first_column + row;
      weights[row][lane] =
          inside && feature < product.columns
              ? ToFloat(static_cast<const Out*>(
                    product.weights)[static_cast<int64_t>(feature) * args.rank + depth + lane])
              : 0;
    }
    __syncthreads();
    for (int k = 0; k < kPlain; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[i] = fmaf(latents[warp + i * 8][k], weights[lane][k], sums[i]);
  }
  const int column = product.first_column + lane;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int32_t position = first + warp + i * 8;
    if (position >= end || column >= product.stored_columns) continue;
    static_cast<Out*>(
        product.out)[(product.first_row + position - args.first_key) * product.stride + column] =
        FromFloat<Out>(sums[i]);
  }
}

// Rope keys behind every head's own, and zeros behind them.
template <typename Cache, typename Out>
__global__ void CopyRopeKernel(const __grid_constant__ ExpandArgs args) {
  const int32_t position = args.first_key + static_cast<int32_t>(blockIdx.x);
  if (position >= EndOf(args)) return;
  const int64_t place = args.pages.RowOf(args.tables.page_table, 0, position);
  const int64_t rows = args.last_key - args.first_key;
  const int width = static_cast<int>(args.key_stride) - args.nope;
  for (int i = static_cast<int>(threadIdx.x); i < width * args.heads;
       i += static_cast<int>(blockDim.x)) {
    const int column = i % width;
    const int64_t row = i / width * rows + blockIdx.x;
    static_cast<Out*>(args.keys)[row * args.key_stride + args.nope + column] =
        column < args.rope ? FromFloat<Out>(ToFloat(
                                 static_cast<const Cache*>(args.ropes)[place * args.rope + column]))
                           : FromFloat<Out>(0);
  }
}

unsigned BlocksOf(int64_t count, int64_t of) {
  return static_cast<unsigned>((count + of - 1) / of);
}

}  // namespace

void ExpandLatents(tensor::ExecutionContext& context, const ExpandArgs& args) {
  const int64_t rows = args.last_key - args.first_key;
  const cudaStream_t stream = StreamOf(context);
  const auto heads = static_cast<unsigned>(args.heads);
  WithTypes(args.cache_type, args.type, [&]<typename Cache, typename Out>(Cache, Out) {
    CopyRopeKernel<Cache, Out><<<static_cast<unsigned>(rows), 128, 0, stream>>>(args);
    NoteLaunch(context, "expanded_latent_attention");
    if constexpr (sizeof(Cache) == 2 && sizeof(Out) == 2) {
      if (args.aligned) {
        QueueOf(context).Note(
            cudaFuncSetAttribute(TensorExpandKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 kSharedBytes),
            "expanded_latent_attention");
        const dim3 grid(BlocksOf(rows, kRows), static_cast<unsigned>(ProductBlocks(args, kColumns)),
                        heads);
        TensorExpandKernel<<<grid, kThreads, kSharedBytes, stream>>>(args);
        return;
      }
    }
    const dim3 grid(BlocksOf(rows, kPlain), static_cast<unsigned>(ProductBlocks(args, kPlain)),
                    heads);
    PlainExpandKernel<Cache, Out><<<grid, kThreads, 0, stream>>>(args);
  });
  NoteLaunch(context, "expanded_latent_attention");
}

}  // namespace longspan::backend::cuda
