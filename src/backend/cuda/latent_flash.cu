#include <algorithm>

#include "backend/cuda/latent_flash.cuh"
#include "backend/cuda/partial_merge.cuh"
#include "backend/cuda/stream.h"
#include "backend/cuda/tensor_core.cuh"
#include "tensor/workspace.h"

namespace longspan::backend::cuda {
namespace {

// A block has 64 queries (heads of one row or of several) and eight warps: warp w computes 16 rows
// from (w % 4) * 16 on, of scores half the keys of a tile, of the output half the rank.
constexpr int kThreads = 256;
constexpr int kQueries = 64;
constexpr int kKeys = 64;  // of a tile
constexpr int kDim = kLatentRank + kLatentRope;
constexpr int kTileBytes = kKeys * kDim * 2;
constexpr int kWeightBytes = kQueries * kKeys * 2;
constexpr int kHalf = kLatentRank / 2;
constexpr int kMaxParts = 64;
constexpr int kPartStride = kPartExtra + kLatentRank;

struct Shared {
  unsigned char queries[kQueries * kDim * 2];
  unsigned char keys[2][kTileBytes];
  unsigned char weights[kWeightBytes];
  float maxima[2][kQueries];
  int64_t places[2][kKeys];
};
static_assert(sizeof(Shared) <= 227 * 1024);

struct Block {
  const LatentFlashArgs& args;
  QueryTile tile;
  int first_head;  // where positions are selected: of the one row
  const int32_t* page_list;
  const int32_t* list;
  int32_t begin;  // of this part's keys
  int32_t end;
  Shared& shared;

  struct Row {
    int32_t row;
    int32_t head;
    bool real;
  };
  __device__ Row RowOf(int query) const {
    const int flat = tile.first + min(query, tile.count - 1);
    if (list != nullptr)
      return {tile.slice_row + tile.first, first_head + min(query, tile.count - 1),
              query < tile.count};
    const int token = flat / args.heads;
    return {tile.slice_row + token, flat % args.heads, query < tile.count};
  }
  __device__ int32_t PositionOf(const Row& row) const { return args.tables.positions[row.row]; }

  __device__ float2* ExpSumAt(const Row& row) const {
    return args.exp_sums + row.row * args.exp_sum_stride + row.head;
  }

  __device__ SwizzledTile<kDim> Queries() const { return {SharedAddress(shared.queries)}; }
  __device__ SwizzledTile<kDim> Keys(int stage) const {
    return {SharedAddress(shared.keys[stage])};
  }
  __device__ SwizzledTile<kKeys> Weights() const { return {SharedAddress(shared.weights)}; }

  __device__ void FindKeys(int stage, int32_t key) const {
    if (threadIdx.x >= kKeys) return;
    const int32_t index = key + static_cast<int32_t>(threadIdx.x);
    int64_t place = -1;
    if (index < end) place = args.pages.RowOf(page_list, 0, list == nullptr ? index : list[index]);
    shared.places[stage][threadIdx.x] = place;
  }

  __device__ void LoadKeys(int stage) const {
    constexpr int kChunks = kDim / 8;
    const auto to = Keys(stage);
#pragma unroll
    for (int i = 0; i < kKeys * kChunks / kThreads; ++i) {
      const int index = static_cast<int>(threadIdx.x) + i * kThreads;
      const int chunk = index % kChunks;
      const int64_t place = shared.places[stage][index / kChunks];
      const int64_t row = place < 0 ? 0 : place;
      const Bf16* from = chunk < kLatentRank / 8
                             ? args.latents + row * kLatentRank + chunk * 8
                             : args.ropes + row * kLatentRope + (chunk * 8 - kLatentRank);
      CopyAsync16(to.At(index / kChunks, chunk), from, place >= 0);
    }
    CommitCopies();
  }

  // Element by element: queries need not be aligned.
  __device__ void LoadQueries() const {
    const auto to = Queries();
    auto* memory = reinterpret_cast<Bf16*>(shared.queries);
    for (int i = static_cast<int>(threadIdx.x); i < kQueries * kDim; i += kThreads) {
      const int column = i % kDim;
      const Row row = RowOf(i / kDim);
      const Bf16* from = column < kLatentRank
                             ? args.latent_queries + row.row * args.latent_row_stride +
                                   row.head * args.latent_head_stride + column
                             : args.rope_queries + row.row * args.rope_row_stride +
                                   row.head * args.rope_head_stride + (column - kLatentRank);
      memory[(to.At(i / kDim, column / 8) - to.base) / 2 + column % 8] = *from;
    }
  }
};

// Entries of an ascending list of `size` that is padded with -1.
__device__ int32_t CountSelected(const int32_t* list, int32_t size) {
  int32_t low = 0;  // entries before it are positions
  int32_t high = size;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (list[middle] >= 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Keys of one of `parts` parts of `count`.
__device__ int32_t PartKeys(int32_t count, int parts) {
  return ((count + parts - 1) / parts + kKeys - 1) / kKeys * kKeys;
}

struct Place {
  QueryTile tile;
  int first_head;
  int32_t count;  // of keys
};

__device__ Place FindPlace(const LatentFlashArgs& args, int index) {
  Place place = {};
  const bool lists = args.selected != nullptr;
  const int head_blocks = lists ? (args.heads + kQueries - 1) / kQueries : 1;
  place.tile = lists ? FindTile(args.tables, index / head_blocks, 1, 1, 1)
                     : FindTile(args.tables, index, args.heads, kQueries, 1);
  if (place.tile.slice < 0) return place;
  if (lists) {
    place.first_head = index % head_blocks * kQueries;
    place.tile.count = min(kQueries, args.heads - place.first_head);
    const int64_t row = place.tile.slice_row + place.tile.first;
    place.count = CountSelected(args.selected + row * args.selected_stride, args.top_k);
  } else {
    const int last_token = (place.tile.first + place.tile.count - 1) / args.heads;
    place.count = args.tables.positions[place.tile.slice_row + last_token] + 1;
  }
  return place;
}

struct Accumulator {
  float out[kHalf / 8][4];
  float maxima[2];  // times log2 e
  float sums[2];    // of this warp's keys and this lane's columns
};

// Scores of the warp's 16 queries with its 32 keys of the tile.
__device__ void Score(const Block& block, int stage, int warp, int lane, float (&scores)[4][4]) {
  const auto queries = block.Queries();
  const auto keys = block.Keys(stage);
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0;
#pragma unroll 4
  for (int k = 0; k < kDim; k += 16) {
    uint32_t a[4];
    queries.LoadA(a, warp % 4 * 16, k, lane);
#pragma unroll
    for (int n = 0; n < 32; n += 16) {
      uint32_t b[4];
      keys.LoadB(b, warp / 4 * 32 + n, k, lane);
      MultiplyAdd(scores[n / 8], a, b[0], b[1]);
      MultiplyAdd(scores[n / 8 + 1], a, b[2], b[3]);
    }
  }
}

__device__ void MaskAndScale(const Block& block, int32_t key, int warp, int lane,
                             float (&scores)[4][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = warp % 4 * 16 + half * 8 + lane / 4;
    const int32_t limit = block.list == nullptr
                              ? min(block.PositionOf(block.RowOf(query)) + 1, block.end)
                              : block.end;
    const int32_t visible = limit - key - warp / 4 * 32;
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[n][2 * half + j];
        score = n * 8 + lane % 4 * 2 + j < visible ? score * block.args.scale_log2 : -INFINITY;
      }
  }
}

// Scores to weights, in shared memory, with the maxima of both halves of the keys.
__device__ void Weigh(const Block& block, int warp, int lane, float (&scores)[4][4],
                      Accumulator& sums) {
  float(&maxima)[2][kQueries] = block.shared.maxima;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = -INFINITY;
#pragma unroll
    for (int n = 0; n < 4; ++n)
      largest = fmaxf(largest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    largest = RowMax(largest);
    if (lane % 4 == 0) maxima[warp / 4][warp % 4 * 16 + half * 8 + lane / 4] = largest;
  }
  __syncthreads();
  const auto to = block.Weights();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp % 4 * 16 + half * 8 + lane / 4;
    const float largest = fmaxf(sums.maxima[half], fmaxf(maxima[0][row], maxima[1][row]));
    const float base = largest == -INFINITY ? 0 : largest;
    if (largest != sums.maxima[half]) {
      const float factor = Exp2(sums.maxima[half] - base);
      sums.maxima[half] = largest;
      sums.sums[half] *= factor;
#pragma unroll
      for (int n = 0; n < kHalf / 8; ++n) {
        sums.out[n][2 * half] *= factor;
        sums.out[n][2 * half + 1] *= factor;
      }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float low = Exp2(scores[n][2 * half] - base);
      const float high = Exp2(scores[n][2 * half + 1] - base);
      sums.sums[half] += low + high;
      const uint32_t address = to.At(row, warp / 4 * 4 + n) + lane % 4 * 4;
      asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(address), "r"(PackBf16(low, high)) : "memory");
    }
  }
  __syncthreads();
}

__device__ void AddLatents(const Block& block, int stage, int warp, int lane, Accumulator& sums) {
  const auto weights = block.Weights();
  const auto latents = block.Keys(stage);
#pragma unroll
  for (int k = 0; k < kKeys; k += 16) {
    uint32_t a[4];
    weights.LoadA(a, warp % 4 * 16, k, lane);
#pragma unroll
    for (int n = 0; n < kHalf; n += 16) {
      uint32_t b[4];
      latents.LoadBTransposed(b, k, warp / 4 * kHalf + n, lane);
      MultiplyAdd(sums.out[n / 8], a, b[0], b[1]);
      MultiplyAdd(sums.out[n / 8 + 1], a, b[2], b[3]);
    }
  }
}

__device__ void Store(const Block& block, int warp, int lane, const Accumulator& sums) {
  const LatentFlashArgs& args = block.args;
  float(&both)[2][kQueries] = block.shared.maxima;  // sums of each half of the keys
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = RowSum(sums.sums[half]);
    if (lane % 4 == 0) both[warp / 4][warp % 4 * 16 + half * 8 + lane / 4] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = warp % 4 * 16 + half * 8 + lane / 4;
    const Block::Row row = block.RowOf(query);
    if (!row.real) continue;
    const float sum = both[0][query] + both[1][query];
    const int first = warp / 4 * kHalf + lane % 4 * 2;
    if (gridDim.y > 1) {
      const int64_t index = (static_cast<int64_t>(blockIdx.x) * kQueries + query) * gridDim.y;
      float* part = args.parts + (index + blockIdx.y) * kPartStride;
      if (warp < 4 && lane % 4 == 0) {
        part[0] = sums.maxima[half];
        part[1] = sum;
      }
#pragma unroll
      for (int n = 0; n < kHalf / 8; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          part[kPartExtra + first + n * 8 + j] = sums.out[n][2 * half + j];
      continue;
    }
    if (block.args.exp_sums != nullptr && warp < 4 && lane % 4 == 0)
      *block.ExpSumAt(row) = ExpSumOf(sums.maxima[half], sum);
    const float inverse = InverseOf(sum);
    Bf16* out = args.out + row.row * args.out_row_stride + row.head * args.out_head_stride;
#pragma unroll
    for (int n = 0; n < kHalf / 8; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        out[first + n * 8 + j] = __float2bfloat16_rn(sums.out[n][2 * half + j] * inverse);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    LatentKernel(const __grid_constant__ LatentFlashArgs args) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Place place = FindPlace(args, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  if (place.tile.slice < 0) return;
  const int32_t part_keys = PartKeys(place.count, static_cast<int>(gridDim.y));
  const int32_t begin = static_cast<int32_t>(blockIdx.y) * part_keys;
  if (begin >= place.count && (place.count > 0 || gridDim.y > 1)) return;
  const int64_t row = place.tile.slice_row + place.tile.first;
  const Block block = {
      args,
      place.tile,
      place.first_head,
      args.tables.page_table + place.tile.slice * args.tables.page_table_stride,
      args.selected == nullptr ? nullptr : args.selected + row * args.selected_stride,
      begin,
      min(begin + part_keys, place.count),
      *reinterpret_cast<Shared*>(memory)};
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  block.FindKeys(0, begin);
  __syncthreads();
  block.LoadKeys(0);
  block.FindKeys(1, begin + kKeys);
  block.LoadQueries();

  Accumulator sums = {{}, {-INFINITY, -INFINITY}, {0, 0}};
  int stage = 0;
  for (int32_t key = begin; key < block.end; key += kKeys, stage ^= 1) {
    WaitForCopies<0>();
    __syncthreads();
    if (key + kKeys < block.end) block.LoadKeys(stage ^ 1);
    block.FindKeys(stage, key + 2 * kKeys);
    float scores[4][4];
    Score(block, stage, warp, lane, scores);
    MaskAndScale(block, key, warp, lane, scores);
    Weigh(block, warp, lane, scores, sums);
    AddLatents(block, stage, warp, lane, sums);
  }
  Store(block, warp, lane, sums);
}

// A block for every query of every tile.
__global__ void MergeKernel(const __grid_constant__ LatentFlashArgs args, int parts) {
  const auto tile_block = static_cast<int>(blockIdx.y);
  const Place place = FindPlace(args, static_cast<int>(gridDim.y) - 1 - tile_block);
  const auto query = static_cast<int>(blockIdx.x);
  if (place.tile.slice < 0 || query >= place.tile.count) return;
  const int flat = place.tile.first + query;
  const bool lists = args.selected != nullptr;
  const int64_t row = place.tile.slice_row + (lists ? place.tile.first : flat / args.heads);
  const int64_t head = lists ? place.first_head + query : flat % args.heads;
  const int32_t keys = max(PartKeys(place.count, parts), 1);
  const float2 exp_sum = MergeParts(
      args.parts + (static_cast<int64_t>(tile_block) * kQueries + query) * parts * kPartStride,
      (place.count + keys - 1) / keys, kPartStride, kLatentRank,
      args.out + row * args.out_row_stride + head * args.out_head_stride);
  if (args.exp_sums != nullptr && threadIdx.x == 0)
    args.exp_sums[row * args.exp_sum_stride + head] = exp_sum;
}

}  // namespace

int64_t LatentFlashWorkspaceBytes(int multiprocessors) {
  return tensor::Workspace::PaddedBytes(int64_t{multiprocessors} * kQueries * kPartStride * 4);
}

void LatentFlash(tensor::ExecutionContext& context, const LatentFlashArgs& args,
                 const ops::StepTables& tables) {
  QueueOf(context).Note(
      cudaFuncSetAttribute(LatentKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           sizeof(Shared)),
      "latent_attention");
  const int64_t tiles = args.selected == nullptr
                            ? TileBound(tables, args.heads, kQueries)
                            : tables.rows * ((args.heads + kQueries - 1) / kQueries);
  const int64_t parts = context.deterministic
                            ? 1
                            : std::clamp<int64_t>(MultiprocessorsOf(context) / tiles, 1, kMaxParts);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts));
  LatentKernel<<<grid, kThreads, sizeof(Shared), StreamOf(context)>>>(args);
  NoteLaunch(context, "latent_attention");
  if (parts == 1) return;
  const dim3 queries(kQueries, static_cast<unsigned>(tiles));
  MergeKernel<<<queries, 128, 0, StreamOf(context)>>>(args, static_cast<int>(parts));
  NoteLaunch(context, "latent_attention");
}

}  // namespace longspan::backend::cuda
