// Index selection: blocks score two rows at a time against tiles of keys and keep the best.
#include <algorithm>

#include "backend/cuda/best_positions.cuh"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/index_scores.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int kMaxParts = 32;  // of the keys, with few rows
constexpr int kMergeThreads = 1024;

// Candidates of a row that fit between two droppings.
int64_t Capacity(int64_t top_k) {
  return (2 * top_k + 1024 + kIndexKeys - 1) / kIndexKeys * kIndexKeys;
}
int64_t MostBlocks(int multiprocessors) { return int64_t{2} * multiprocessors; }

struct SelectArgs {
  IndexArgs index;
  int top_k;
  int capacity;
  Candidate* candidates;  // [blocks, kIndexRows, capacity]
  int32_t* counts;        // [blocks, kIndexRows]
  int32_t* selected;
  int64_t selected_stride;
  int tiles;  // of rows, at most
};

struct RowTile {
  int32_t slice;  // -1: none
  int32_t row;    // of the op
  int32_t rows;
  int32_t first_position;
  int32_t last_position;

  __device__ int32_t PositionOf(int i) const { return i == 0 ? first_position : last_position; }
};
static_assert(kIndexRows == 2);

__device__ RowTile FindRows(const SelectArgs& args, int tile) {
  const QueryTile found = FindTile(args.index.tables, tile, 1, kIndexRows, 1);
  if (found.slice < 0) return {-1, 0, 0, 0, 0};
  const int32_t row = found.slice_row + found.first;
  const int32_t* positions = args.index.tables.positions + row;
  return {found.slice, row, found.count, positions[0], positions[found.count - 1]};
}

__device__ int32_t PartKeys(int32_t length, int parts) {
  return ((length + parts - 1) / parts + kIndexKeys - 1) / kIndexKeys * kIndexKeys;
}

// Rows that see no more than top_k positions.
__device__ void SelectAll(const SelectArgs& args, const RowTile& tile, int row) {
  int32_t* selected = args.selected + (tile.row + row) * args.selected_stride;
  for (int32_t i = static_cast<int>(threadIdx.x); i < args.top_k; i += kIndexThreads)
    selected[i] = i <= tile.PositionOf(row) ? i : -1;
}

// Appends a tile's scores that may be among the best. By one warp.
struct Appender {
  Candidate* to;
  int32_t count;
  uint32_t threshold;  // only scores above it
  bool full;

  __device__ void Add(const IndexPartials& partial, int row, int32_t first, int32_t end) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int key = lane; key < kIndexKeys; key += 32) {
      float sum = 0;
#pragma unroll
      for (int group = 0; group < kIndexGroups; ++group) sum += partial[row][group][key];
      const Candidate candidate = {OrderedScore(sum), first + key};
      const bool good = candidate.position < end && (!full || candidate.score > threshold);
      const uint32_t votes = __ballot_sync(0xffffffff, good);
      if (good) to[count + __popc(votes & ((1u << lane) - 1))] = candidate;
      count += __popc(votes);
    }
  }
};

template <typename Scorer>
struct Selector {
  const SelectArgs& args;
  Scorer& scorer;
  IndexPartials (&partial)[2];
  DropScratch<kIndexThreads>& scratch;
  int32_t (&counts)[kIndexRows];
  uint32_t (&thresholds)[kIndexRows];

  __device__ Candidate* Of(int row) const {
    return args.candidates + (static_cast<int64_t>(blockIdx.x) * kIndexRows + row) * args.capacity;
  }

  __device__ void Drop(int row) const {
    Candidate* own = Of(row);
    const uint32_t worst = KeepBest<kIndexThreads>(
        counts[row], args.top_k, scratch, [&](int32_t i) { return own[i]; },
        [&](int32_t place, const Candidate& candidate) { own[place] = candidate; });
    if (threadIdx.x == 0) {
      thresholds[row] = worst;
      counts[row] = args.top_k;
    }
    __syncthreads();
  }

  // The best of positions [begin, end) of every row of the tile.
  __device__ void Run(const RowTile& tile, int32_t begin, int32_t end) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int row = warp / kIndexGroups;
    const bool appends =
        warp % kIndexGroups == 0 && row < tile.rows && tile.PositionOf(row) >= args.top_k;
    Appender appender = {Of(row), 0, 0, false};
    if (threadIdx.x < kIndexRows) counts[threadIdx.x] = 0;
    scorer.Begin(tile.row, tile.rows);
    __syncthreads();
    for (int i = 0; i + 1 < Scorer::kStages; ++i) scorer.Load(i, begin + i * kIndexKeys, end);
    int stage = 0;
    const int32_t tiles = (end - begin + kIndexKeys - 1) / kIndexKeys;
    for (int32_t i = 0; i <= tiles; ++i) {
      Scorer::Arrive();
      __syncthreads();
      if (i > 0 && appends) {
        const int32_t first = begin + (i - 1) * kIndexKeys;
        appender.Add(partial[(i - 1) % 2], row, first, min(end, tile.PositionOf(row) + 1));
        if (threadIdx.x % 32 == 0) counts[row] = appender.count;
      }
      if (i == tiles) break;
      scorer.Load((stage + Scorer::kStages - 1) % Scorer::kStages,
                  begin + (i + Scorer::kStages - 1) * kIndexKeys, end);
      scorer.Score(stage, partial[i % 2]);
      stage = (stage + 1) % Scorer::kStages;
      // What is appended until the counts are looked at again: two tiles.
      if (i % kLook != kLook - 1) continue;
      __syncthreads();
      for (int r = 0; r < kIndexRows; ++r) {
        if (counts[r] <= args.capacity - (kLook + 1) * kIndexKeys) continue;
        Drop(r);
        if (appends && row == r) {
          appender.count = args.top_k;
          appender.threshold = thresholds[r];
          appender.full = true;
        }
      }
    }
    WaitForCopies<0>();
    __syncthreads();
  }

  static constexpr int kLook = 4;  // tiles between looks at the counts
};

template <typename Scorer>
__global__ void __launch_bounds__(kIndexThreads, 2)
    SelectKernel(const __grid_constant__ SelectArgs args, int parts) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ IndexPartials partial[2];
  __shared__ DropScratch<kIndexThreads> scratch;
  __shared__ int32_t counts[kIndexRows];
  __shared__ uint32_t thresholds[kIndexRows];
  Scorer scorer(args.index, memory);
  const Selector<Scorer> selector = {args, scorer, partial, scratch, counts, thresholds};
  const int part = static_cast<int>(blockIdx.x) % parts;
  const int stride = static_cast<int>(gridDim.x) / parts;
  for (int i = static_cast<int>(blockIdx.x) / parts; i < args.tiles; i += stride) {
    // Backwards: the last rows of a chunk see the most keys.
    const RowTile tile = FindRows(args, args.tiles - 1 - i);
    if (tile.slice < 0) continue;
    const int32_t last = tile.last_position;
    const bool scored = last >= args.top_k;
    if (scored) {
      const int32_t keys = PartKeys(last + 1, parts);
      const int32_t begin = min(part * keys, last + 1);
      scorer.page_list =
          args.index.tables.page_table + tile.slice * args.index.tables.page_table_stride;
      selector.Run(tile, begin, min(begin + keys, last + 1));
    }
    for (int row = 0; row < tile.rows; ++row) {
      if (tile.PositionOf(row) < args.top_k) {
        if (part == 0) SelectAll(args, tile, row);
        continue;
      }
      if (parts > 1) {
        if (counts[row] > args.top_k) selector.Drop(row);
        if (threadIdx.x == 0)
          args.counts[static_cast<int64_t>(blockIdx.x) * kIndexRows + row] = counts[row];
        continue;
      }
      const Candidate* own = selector.Of(row);
      int32_t* selected = args.selected + (tile.row + row) * args.selected_stride;
      KeepBest<kIndexThreads>(
          counts[row], args.top_k, scratch, [&](int32_t j) { return own[j]; },
          [&](int32_t place, const Candidate& candidate) { selected[place] = candidate.position; });
    }
    __syncthreads();
  }
}

// The best of the parts' candidates. A block for every row of every tile.
__global__ void __launch_bounds__(kMergeThreads)
    SelectOfPartsKernel(const __grid_constant__ SelectArgs args, int parts) {
  __shared__ DropScratch<kMergeThreads> scratch;
  __shared__ int32_t ends[kMaxParts];
  const auto i = static_cast<int>(blockIdx.x);
  const auto row = static_cast<int>(blockIdx.y);
  const RowTile tile = FindRows(args, args.tiles - 1 - i);
  if (tile.slice < 0 || row >= tile.rows || tile.PositionOf(row) < args.top_k) return;
  const int64_t first = static_cast<int64_t>(i) * parts * kIndexRows + row;  // of the counts
  if (threadIdx.x == 0) {
    int32_t end = 0;
    for (int part = 0; part < parts; ++part)
      ends[part] = end += args.counts[first + part * kIndexRows];
  }
  __syncthreads();
  int32_t* selected = args.selected + (tile.row + row) * args.selected_stride;
  KeepBest<kMergeThreads>(
      ends[parts - 1], args.top_k, scratch,
      [&](int32_t j) {
        int part = 0;
        while (ends[part] <= j) ++part;
        const int32_t place = part == 0 ? j : j - ends[part - 1];
        return args.candidates[(first + part * kIndexRows) * args.capacity + place];
      },
      [&](int32_t place, const Candidate& candidate) { selected[place] = candidate.position; });
}

bool OnTensorCores(const ops::IndexSelectArgs& args) {
  return args.queries.dtype() == DType::kBf16 && args.index_cache.dtype() == DType::kBf16 &&
         args.queries.size(1) <= 16 * kIndexGroups && args.queries.size(2) <= TensorScorer::kDim &&
         args.queries.size(2) % 8 == 0 && IsAligned16(args.index_cache);
}

template <typename Scorer>
void Launch(ExecutionContext& context, const SelectArgs& args, int64_t blocks, int parts) {
  const auto kernel = SelectKernel<Scorer>;
  const int shared = Scorer::SharedBytes(args.index);
  QueueOf(context).Note(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
      "index_select");
  kernel<<<static_cast<unsigned>(blocks), kIndexThreads, shared, StreamOf(context)>>>(args, parts);
  NoteLaunch(context, "index_select");
}

}  // namespace

int64_t IndexSelectWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape) {
  if (shape.index_top_k == 0) return 0;
  const int64_t rows = MostBlocks(multiprocessors) * kIndexRows;
  return tensor::Workspace::PaddedBytes(rows * Capacity(shape.index_top_k) * 8) +
         tensor::Workspace::PaddedBytes(rows * 4);
}

void IndexSelect(ExecutionContext& context, const ops::IndexSelectArgs& args) {
  if (args.tables.rows == 0) return;
  const int64_t top_k = args.selected.size(1);
  const int64_t most = MostBlocks(MultiprocessorsOf(context));
  tensor::Workspace::Scope scope(context.workspace);
  const tensor::View candidates = scope.Take(DType::kI64, {most * kIndexRows, Capacity(top_k)});
  const tensor::View counts = scope.Take(DType::kI32, {most * kIndexRows});
  const int64_t tiles = TileBound(args.tables, 1, kIndexRows);
  // A selection depends on scores alone, not on how the keys are parted.
  const int64_t parts = std::clamp<int64_t>(most / tiles, 1, kMaxParts);
  const SelectArgs select = {.index = {.queries = args.queries.raw(),
                                       .query_row_stride = args.queries.stride(0),
                                       .query_head_stride = args.queries.stride(1),
                                       .head_weights = args.head_weights.data<float>(),
                                       .weight_stride = args.head_weights.stride(0),
                                       .keys = args.index_cache.raw(),
                                       .heads = static_cast<int>(args.queries.size(1)),
                                       .dim = static_cast<int>(args.queries.size(2)),
                                       .pages = CachePages::Of(args.index_cache),
                                       .tables = DeviceTables::Of(args.tables),
                                       .scale = args.scale},
                             .top_k = static_cast<int>(top_k),
                             .capacity = static_cast<int>(Capacity(top_k)),
                             .candidates = static_cast<Candidate*>(candidates.raw()),
                             .counts = counts.data<int32_t>(),
                             .selected = args.selected.data<int32_t>(),
                             .selected_stride = args.selected.stride(0),
                             .tiles = static_cast<int>(tiles)};
  const int64_t blocks = parts > 1 ? tiles * parts : std::min(tiles, most);
  if (OnTensorCores(args)) {
    Launch<TensorScorer>(context, select, blocks, static_cast<int>(parts));
  } else {
    WithTypes(args.queries.dtype(), args.index_cache.dtype(), [&]<typename Q, typename C>(Q, C) {
      Launch<PlainScorer<Q, C>>(context, select, blocks, static_cast<int>(parts));
    });
  }
  if (parts == 1) return;
  const dim3 rows(static_cast<unsigned>(tiles), kIndexRows);
  SelectOfPartsKernel<<<rows, kMergeThreads, 0, StreamOf(context)>>>(select,
                                                                     static_cast<int>(parts));
  NoteLaunch(context, "index_select");
}

}  // namespace longspan::backend::cuda
