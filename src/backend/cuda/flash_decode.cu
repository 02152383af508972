#include <algorithm>

#include "backend/cuda/flash_decode.cuh"
#include "backend/cuda/partial_merge.cuh"
#include "backend/cuda/stream.h"
#include "backend/cuda/tensor_core.cuh"
#include "tensor/workspace.h"

namespace longspan::backend::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kQueries = 16;  // of one row, which share their keys
constexpr int kKeys = 64;     // of a tile, 16 for each warp
constexpr int kStages = 3;
constexpr int kMaxParts = 128;

template <int kDim>
constexpr int kTileBytes = kKeys* kDim * 2;
template <int kDim>
constexpr int kSharedBytes = kQueries* kDim * 2 + 2 * kStages* kTileBytes<kDim>;

int64_t QueryBlocks(int64_t group) { return (group + kQueries - 1) / kQueries; }

// Two blocks to a multiprocessor, if the step can be split so far.
int64_t Parts(int multiprocessors, int64_t slices, int64_t kv_heads, int64_t group) {
  const int64_t blocks = slices * kv_heads * QueryBlocks(group);
  return std::clamp<int64_t>(int64_t{2} * multiprocessors / blocks, 1, kMaxParts);
}

struct DecodeArgs {
  FlashArgs flash;
  int kv_heads;
  bool all_rows;  // not only slices of one row
  float* parts;   // [slices, heads, gridDim.x, kPartExtra + kDim]; null where there is one part
};

struct DecodeRow {
  int32_t slice;  // -1: nothing to do
  int32_t row;    // of the op
};

// Of slice `index`, or where all rows are computed (as many as there are slices) row `index`. By
// whole warps.
__device__ DecodeRow RowAt(const DecodeArgs& args, int32_t index) {
  const DeviceTables& tables = args.flash.tables;
  const int32_t row = tables.slice_row_begin[index] - *tables.first_row;
  const bool single = tables.slice_row_begin[index + 1] - tables.slice_row_begin[index] == 1;
  if (!args.all_rows) return {single ? index : -1, row};
  if (single && row == index) return {index, row};
  const QueryTile tile = FindTile(tables, index, 1, 1, 1);
  return {tile.slice, tile.slice_row + tile.first};
}

// Keys of a part.
struct Part {
  int32_t begin;
  int32_t end;
};
__device__ int32_t PartKeys(int32_t length, int parts) {
  const int32_t keys = (length + parts - 1) / parts;
  return (keys + kKeys - 1) / kKeys * kKeys;
}

template <int kDim>
struct Pipeline {
  const FlashArgs& args;
  const int32_t* page_list;
  int64_t head;
  Part part;
  uint32_t shared;

  __device__ SwizzledTile<kDim> Queries() const { return {shared}; }
  __device__ SwizzledTile<kDim> Keys(int stage) const {
    return {shared + kQueries * kDim * 2 + 2 * stage * kTileBytes<kDim>};
  }
  __device__ SwizzledTile<kDim> Values(int stage) const {
    return {Keys(stage).base + kTileBytes<kDim>};
  }

  // Always one group of copies, empty behind the end.
  __device__ void Load(int tile) const {
    constexpr int kChunks = kDim / 8;
    const int stage = tile % kStages;
    const int32_t first = part.begin + tile * kKeys;
    if (first < part.end) {
#pragma unroll
      for (int i = 0; i < kKeys * kChunks / kThreads; ++i) {
        const int index = static_cast<int>(threadIdx.x) + i * kThreads;
        const int chunk = index % kChunks;
        const int32_t position = first + index / kChunks;
        const bool valid = position < part.end && chunk * 8 < args.key_dim;
        const int64_t row = valid ? args.pages.RowOf(page_list, head, position) : 0;
        const int column = valid ? chunk * 8 : 0;
        CopyAsync16(Keys(stage).At(index / kChunks, chunk),
                    args.keys + row * args.key_stride + column, valid);
        CopyAsync16(Values(stage).At(index / kChunks, chunk),
                    args.values + row * args.value_stride + column, valid);
      }
    }
    CommitCopies();
  }
};

// What a block computes: up to kQueries queries of one row.
struct DecodePlace {
  int32_t row;
  int64_t head;     // of keys
  int first_query;  // of those that share the keys
  int queries;
};

// Straight into shared memory; queries need not be aligned. Zeros behind the last one.
template <int kDim>
__device__ void LoadQueries(const FlashArgs& args, const DecodePlace& place,
                            const SwizzledTile<kDim>& to, Bf16* memory) {
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * kDim; i += kThreads) {
    const int query = i / kDim;
    const int column = i % kDim;
    const bool valid = query < place.queries && column < args.key_dim;
    const int64_t query_head = place.head * args.group + place.first_query + query;
    const Bf16* from =
        args.queries + place.row * args.query_row_stride + query_head * args.query_head_stride;
    memory[(to.At(query, column / 8) - to.base) / 2 + column % 8] =
        valid ? from[column] : __float2bfloat16_rn(0);
  }
}

// A warp's queries, all of the block's, over its quarter of every tile: a thread has two of them.
template <int kDim>
struct DecodeWarp {
  const Pipeline<kDim>& pipeline;
  int warp;
  int lane;
  uint32_t queries[kDim / 16][4];
  float out[kDim / 8][4] = {};
  float maxima[2] = {-INFINITY, -INFINITY};  // times log2 e
  float sums[2] = {0, 0};

  __device__ void TakeQueries() {
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) pipeline.Queries().LoadA(queries[k], 0, k * 16, lane);
  }

  __device__ void Add(int tile) {
    const int stage = tile % kStages;
    float scores[2][4] = {};
    const auto keys = pipeline.Keys(stage);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t b[4];
      keys.LoadB(b, warp * 16, k * 16, lane);
      MultiplyAdd(scores[0], queries[k], b[0], b[1]);
      MultiplyAdd(scores[1], queries[k], b[2], b[3]);
    }
    uint32_t weights[4];
    Weigh(pipeline.part.end - pipeline.part.begin - tile * kKeys - warp * 16, scores, weights);
    const auto values = pipeline.Values(stage);
#pragma unroll
    for (int n = 0; n < kDim; n += 16) {
      uint32_t b[4];
      values.LoadBTransposed(b, warp * 16, n, lane);
      MultiplyAdd(out[n / 8], weights, b[0], b[1]);
      MultiplyAdd(out[n / 8 + 1], weights, b[2], b[3]);
    }
  }

  // Scores of 16 keys, of which so many are visible, to weights.
  __device__ void Weigh(int visible, float (&scores)[2][4], uint32_t (&weights)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = maxima[half];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[n][2 * half + j];
          const bool seen = n * 8 + lane % 4 * 2 + j < visible;
          score = seen ? score * pipeline.args.scale_log2 : -INFINITY;
          largest = fmaxf(largest, score);
        }
      largest = RowMax(largest);
      const float base = largest == -INFINITY ? 0 : largest;
      const float factor = Exp2(maxima[half] - base);
      maxima[half] = largest;
      sums[half] *= factor;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        out[n][2 * half] *= factor;
        out[n][2 * half + 1] *= factor;
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float low = Exp2(scores[n][2 * half] - base);
        const float high = Exp2(scores[n][2 * half + 1] - base);
        sums[half] += low + high;
        weights[n * 2 + half] = PackBf16(low, high);
      }
    }
  }

  // Its part: [kQueries, kPartExtra + kDim].
  __device__ void Store(float* parts) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* part = parts + (half * 8 + lane / 4) * (kPartExtra + kDim);
      const float sum = RowSum(sums[half]);
      if (lane % 4 == 0) {
        part[0] = maxima[half];
        part[1] = sum;
      }
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          part[kPartExtra + n * 8 + lane % 4 * 2 + j] = out[n][2 * half + j];
    }
  }
};

// Of a row that sees no key.
__device__ void StoreNothing(const FlashArgs& args, const DecodePlace& place) {
  for (int i = static_cast<int>(threadIdx.x); i < place.queries * args.value_dim; i += kThreads) {
    const int column = i % args.value_dim;
    const int64_t head = place.head * args.group + place.first_query + i / args.value_dim;
    args.out[place.row * args.out_row_stride + head * args.out_head_stride + column] =
        __float2bfloat16_rn(0);
    if (column == 0) args.exp_sums[place.row * args.exp_sum_stride + head] = ExpSumOf(0, 0);
  }
}

// The warps' parts [kWarps, kQueries, kPartExtra + kDim] to one of the block, or to the output.
template <int kDim>
__device__ void MergeWarps(const DecodeArgs& decode, const DecodePlace& place, const float* parts) {
  constexpr int kStride = kPartExtra + kDim;
  constexpr int kWarpStride = kQueries * kStride;
  const FlashArgs& args = decode.flash;
  for (int i = static_cast<int>(threadIdx.x); i < place.queries * kDim; i += kThreads) {
    const int query = i / kDim;
    const int column = i % kDim;
    const float* part = parts + query * kStride;
    float largest = part[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, part[w * kWarpStride]);
    float sum = 0;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = Exp2(part[w * kWarpStride] - largest);
      sum += part[w * kWarpStride + 1] * factor;
      total += part[w * kWarpStride + kPartExtra + column] * factor;
    }
    const int64_t query_head = place.head * args.group + place.first_query + query;
    if (decode.parts == nullptr) {
      if (column < args.value_dim)
        args.out[place.row * args.out_row_stride + query_head * args.out_head_stride + column] =
            __float2bfloat16_rn(total / sum);
      if (args.exp_sums != nullptr && column == 0)
        args.exp_sums[place.row * args.exp_sum_stride + query_head] = ExpSumOf(largest, sum);
      continue;
    }
    const int64_t row_head =
        static_cast<int64_t>(blockIdx.z) * decode.kv_heads * args.group + query_head;
    float* to = decode.parts + (row_head * gridDim.x + blockIdx.x) * kStride;
    if (column == 0) {
      to[0] = largest;
      to[1] = sum;
    }
    to[kPartExtra + column] = total;
  }
}

// Some queries of one row, over a part of its keys.
template <int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    DecodeKernel(const __grid_constant__ DecodeArgs decode) {
  extern __shared__ __align__(128) unsigned char memory[];
  const FlashArgs& args = decode.flash;
  const auto [slice, row] = RowAt(decode, static_cast<int32_t>(blockIdx.z));
  if (slice < 0) return;
  const int32_t length = args.tables.positions[row] + 1;
  const int32_t keys = PartKeys(length, static_cast<int>(gridDim.x));
  const int32_t begin = static_cast<int32_t>(blockIdx.x) * keys;
  const int first_query = static_cast<int>(blockIdx.y) / decode.kv_heads * kQueries;
  const DecodePlace place = {row, blockIdx.y % decode.kv_heads, first_query,
                             min(kQueries, args.group - first_query)};
  if (begin >= length) {
    if (length == 0 && decode.parts == nullptr) StoreNothing(args, place);
    return;
  }
  const Pipeline<kDim> pipeline = {args,
                                   args.tables.page_table + slice * args.tables.page_table_stride,
                                   place.head,
                                   {begin, min(begin + keys, length)},
                                   SharedAddress(memory)};
  for (int tile = 0; tile + 1 < kStages; ++tile) pipeline.Load(tile);
  LoadQueries(args, place, pipeline.Queries(), reinterpret_cast<Bf16*>(memory));
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  DecodeWarp<kDim> own = {pipeline, warp, static_cast<int>(threadIdx.x) % 32};
  own.TakeQueries();
  const int tiles = (pipeline.part.end - begin + kKeys - 1) / kKeys;
  for (int tile = 0; tile < tiles; ++tile) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    pipeline.Load(tile + kStages - 1);
    own.Add(tile);
  }
  WaitForCopies<0>();
  __syncthreads();
  // Where the tiles were.
  constexpr int kWarpFloats = kQueries * (kPartExtra + kDim);
  static_assert(kWarps * kWarpFloats * 4 <= kSharedBytes<kDim>);
  auto* parts = reinterpret_cast<float*>(memory);
  own.Store(parts + warp * kWarpFloats);
  __syncthreads();
  MergeWarps<kDim>(decode, place, parts);
}

// A block for every head of every row.
template <int kDim>
__global__ void MergeKernel(const __grid_constant__ DecodeArgs decode, int most_parts) {
  const FlashArgs& args = decode.flash;
  const DeviceTables& tables = args.tables;
  const auto [slice, row] = RowAt(decode, static_cast<int32_t>(blockIdx.y));
  if (slice < 0) return;
  const int32_t length = tables.positions[row] + 1;
  const int32_t keys = max(PartKeys(length, most_parts), 1);
  constexpr int kStride = kPartExtra + kDim;
  const int64_t index = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const float2 exp_sum = MergeParts(
      decode.parts + index * most_parts * kStride, (length + keys - 1) / keys, kStride,
      args.value_dim, args.out + row * args.out_row_stride + blockIdx.x * args.out_head_stride);
  if (args.exp_sums != nullptr && threadIdx.x == 0)
    args.exp_sums[row * args.exp_sum_stride + blockIdx.x] = exp_sum;
}

template <int kDim>
void Launch(tensor::ExecutionContext& context, const DecodeArgs& args, int64_t slices,
            int64_t parts) {
  QueueOf(context).Note(
      cudaFuncSetAttribute(DecodeKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kSharedBytes<kDim>),
      "attention");
  const auto blocks = static_cast<unsigned>(args.kv_heads * QueryBlocks(args.flash.group));
  const dim3 grid(static_cast<unsigned>(parts), blocks, static_cast<unsigned>(slices));
  DecodeKernel<kDim><<<grid, kThreads, kSharedBytes<kDim>, StreamOf(context)>>>(args);
  NoteLaunch(context, "attention");
  if (parts == 1) return;
  const dim3 rows(static_cast<unsigned>(args.kv_heads * args.flash.group),
                  static_cast<unsigned>(slices));
  MergeKernel<kDim><<<rows, kDim, 0, StreamOf(context)>>>(args, static_cast<int>(parts));
  NoteLaunch(context, "attention");
}

int64_t PaddedDim(int64_t dim) { return dim <= 64 ? 64 : 128; }

}  // namespace

// Of the most parts that a step may have, whatever its slices are.
int64_t FlashDecodeWorkspaceBytes(int multiprocessors, int64_t heads, int64_t kv_heads,
                                  int64_t head_dim) {
  if (kv_heads == 0) return 0;
  const int64_t blocks = kv_heads * QueryBlocks(heads / kv_heads);
  const int64_t parts = std::max<int64_t>(1, int64_t{2} * multiprocessors / blocks);
  return tensor::Workspace::PaddedBytes(parts * heads * (kPartExtra + PaddedDim(head_dim)) * 4);
}

void FlashDecode(tensor::ExecutionContext& context, const FlashArgs& args, int64_t kv_heads,
                 const ops::StepTables& tables, float* scratch) {
  const int64_t parts = Parts(MultiprocessorsOf(context), tables.slices, kv_heads, args.group);
  const DecodeArgs decode = {args, static_cast<int>(kv_heads), tables.rows == tables.slices,
                             parts == 1 ? nullptr : scratch};
  if (PaddedDim(args.key_dim) == 64) return Launch<64>(context, decode, tables.slices, parts);
  Launch<128>(context, decode, tables.slices, parts);
}

}  // namespace longspan::backend::cuda
