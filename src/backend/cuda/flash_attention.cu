#include "backend/cuda/barrier.cuh"
#include "backend/cuda/flash_attention.cuh"
#include "backend/cuda/flash_rows.cuh"
#include "backend/cuda/stream.h"
#include "backend/cuda/wgmma_values.cuh"

namespace longspan::backend::cuda {
namespace {

// A block computes kRows queries. One warpgroup brings keys and values, tile by tile; two multiply,
// 64 queries each: while the matrix unit takes the next scores and adds the last tile's values, the
// weights of the scores between them are computed, and the two take turns at it
// (FlashAttention-3: Shah et al. 2024, arXiv:2407.08608).
template <int kKeyDim_, int kValueDim_>
struct Shape {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kWarpgroup = 128;
  static constexpr int kMultipliers = 2;
  static constexpr int kThreads = (1 + kMultipliers) * kWarpgroup;
  static constexpr int kRows = kMultipliers * 64;
  static constexpr int kKeys = 128;
  // Chunks of 64 columns.
  static constexpr int kKeyChunks = kKeyDim / 64;
  static constexpr int kValueChunks = kValueDim / 64;
  static constexpr int kStages = kKeyDim > 128 ? 2 : 3;  // as many as there is room for
  static constexpr int kChunkBytes = kKeys * 128;
  static constexpr int kSharedBytes =
      1024 + (kKeyChunks + kStages * (kKeyChunks + kValueChunks)) * kChunkBytes;
  static_assert(kRows == kKeys);
};

struct Barriers {
  static constexpr int kMostStages = 3;
  uint64_t keys_filled[kMostStages];
  uint64_t keys_free[kMostStages];
  uint64_t values_filled[kMostStages];
  uint64_t values_free[kMostStages];
};

template <typename S>
struct Memory {
  uint32_t base;  // shared address, a multiple of 1024
  Barriers& barriers;

  __device__ uint32_t queries() const { return base; }
  __device__ uint32_t keys(int stage) const {
    return base + (S::kKeyChunks + stage * S::kKeyChunks) * S::kChunkBytes;
  }
  __device__ uint32_t values(int stage) const {
    return base + ((1 + S::kStages) * S::kKeyChunks + stage * S::kValueChunks) * S::kChunkBytes;
  }
};

// By the first warpgroup: every warp copies a quarter of the rows.
template <typename S>
struct Bringer {
  const FlashBlock& block;
  const Memory<S>& memory;

  // Of the row of the tile that this lane looks up; -1 where there is none.
  __device__ int64_t RowOf(int tile) const {
    const FlashArgs& args = block.args;
    const int32_t position = args.first_key + tile * S::kKeys + static_cast<int32_t>(threadIdx.x);
    if (position >= block.key_end) return -1;
    return args.paged ? args.pages.RowOf(block.page_list, block.head, position)
                      : block.head * args.rows_per_head + (position - args.first_key);
  }

  // `offset`: in `from`, of the row that this lane looked up; -1 for zeros.
  template <int kChunks>
  __device__ void Copy(uint32_t to, const Bf16* from, int dim, int64_t offset) const {
    constexpr int kUnits = kChunks * 8;  // of 16 bytes, of a row
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 8
    for (int i = 0; i < kUnits; ++i) {  // 32 rows by 32 lanes
      const int index = i * 32 + lane;
      const int unit = index % kUnits;
      const int row = index / kUnits;
      const int64_t place = __shfl_sync(0xffffffff, offset, row);
      const bool valid = place >= 0 && unit * 8 < dim;
      CopyUnit(to + (unit / 8) * S::kChunkBytes + SwizzledOffset(warp * 32 + row, unit % 8),
               from + (valid ? place + unit * 8 : 0), valid);
    }
  }

  __device__ void CopyKeys(int tile, int64_t row) const {
    const FlashArgs& args = block.args;
    const int stage = tile % S::kStages;
    WaitFor(memory.barriers.keys_free + stage, (tile / S::kStages & 1) ^ 1);
    Copy<S::kKeyChunks>(memory.keys(stage), args.keys, args.key_dim,
                        row < 0 ? row : row * args.key_stride);
    ArriveAfterCopies(memory.barriers.keys_filled + stage);
  }
  __device__ void CopyValues(int tile, int64_t row) const {
    const FlashArgs& args = block.args;
    const int stage = tile % S::kStages;
    WaitFor(memory.barriers.values_free + stage, (tile / S::kStages & 1) ^ 1);
    Copy<S::kValueChunks>(memory.values(stage), args.values, (args.value_dim + 7) / 8 * 8,
                          row < 0 ? row : row * args.value_stride);
    ArriveAfterCopies(memory.barriers.values_filled + stage);
  }

  // In the order in which the multipliers are done with what they replace.
  __device__ void Run(int tiles) const {
    int64_t row = RowOf(0);
    int64_t next = RowOf(1);
    CopyKeys(0, row);
    for (int tile = 0; tile < tiles; ++tile) {
      const int64_t after = RowOf(tile + 2);
      if (tile + 1 < tiles) CopyKeys(tile + 1, next);
      CopyValues(tile, row);
      row = next;
      next = after;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
};

// By a multiplying warpgroup, for its 64 queries: a thread has two rows of them.
template <typename S>
struct Multiplier {
  const FlashBlock& block;
  const Memory<S>& memory;
  int first_query;  // of the warpgroup
  int row;          // this thread's first, of the block; the other is eight on
  int lane;

  __device__ void LoadQueries() const {
    const int thread = static_cast<int>(threadIdx.x) % S::kWarpgroup;
    constexpr int kUnits = S::kKeyDim / 8;
    for (int i = thread; i < 64 * kUnits; i += S::kWarpgroup) {
      const int query = first_query + i / kUnits;
      const int unit = i % kUnits;
      uint32_t words[4];
      block.QueryWords(query, unit, words);
      const uint32_t to =
          memory.queries() + unit / 8 * S::kChunkBytes + SwizzledOffset(query, unit % 8);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]),
                   "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
    FenceForMatrixUnit();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + first_query / 64) : "memory");
  }

  __device__ void BeginScores(int tile, float (&scores)[S::kKeys / 2]) const {
    const int stage = tile % S::kStages;
    WaitFor(memory.barriers.keys_filled + stage, tile / S::kStages & 1);
    FenceForMatrixUnit();
    const uint64_t queries = SwizzledOperand(memory.queries() + first_query * 128);
    const uint64_t keys = SwizzledOperand(memory.keys(stage));
    PinSums(scores);
    FenceSums();
#pragma unroll
    for (int part = 0; part < S::kKeyDim / 16; ++part) {
      const int offset = part / 4 * (S::kChunkBytes / 16) + part % 4 * 2;
      MultiplyAdd(scores, queries + offset, keys + offset, part > 0);
    }
    CommitProducts();
  }
  __device__ void BeginValues(int tile, const uint32_t (&weights)[S::kKeys / 4],
                              float (&out)[S::kValueDim / 2]) const {
    const int stage = tile % S::kStages;
    WaitFor(memory.barriers.values_filled + stage, tile / S::kStages & 1);
    FenceForMatrixUnit();
    PinSums(out);
    FenceSums();
#pragma unroll
    for (int part = 0; part < S::kKeys / 16; ++part)
      MultiplyAddValues(out, weights + part * 4,
                        RowOperand(memory.values(stage) + part * 2048, S::kChunkBytes));
    CommitProducts();
  }
  __device__ void Free(uint64_t* barriers, int tile) const {
    if (lane == 0) Arrive(barriers + tile % S::kStages);
  }

  __device__ void Mask(int tile, float (&scores)[S::kKeys / 2]) const {
    const int32_t key = block.args.first_key + tile * S::kKeys;
    if (key + S::kKeys <= block.first_visible && key + S::kKeys <= block.key_end) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t position = block.PositionOf(block.RowOf(row + half * 8));
      const int32_t visible = min(position + 1, block.key_end) - key;
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (n * 8 + lane % 4 * 2 + j >= visible) scores[n * 4 + half * 2 + j] = -INFINITY;
    }
  }

  __device__ void Run(int tiles) const {
    float scores[S::kKeys / 2];
    float out[S::kValueDim / 2];
    FlashSums sums;
    LoadQueries();
    BeginScores(0, scores);
    block.template Begin<S::kValueDim>(row, lane, sums, out);
    WaitForProducts<0>();
    PinSums(scores);
    Free(memory.barriers.keys_free, 0);
    Mask(0, scores);
    float factors[2];
    sums.Weigh(block.args.scale_log2, scores, factors);
    Scale(factors, out);
    uint32_t weights[S::kKeys / 4];
    Pack(scores, weights);
    if (first_query != 0 && tiles > 1) EndTurn();
    for (int tile = 1; tile < tiles; ++tile) {
      WaitForTurn();
      BeginScores(tile, scores);
      BeginValues(tile - 1, weights, out);
      if (first_query == 0 || tile + 1 < tiles) EndTurn();
      WaitForProducts<1>();
      PinSums(scores);
      Free(memory.barriers.keys_free, tile);
      Mask(tile, scores);
      sums.Weigh(block.args.scale_log2, scores, factors);
      WaitForProducts<0>();
      PinSums(out);
      Free(memory.barriers.values_free, tile - 1);
      Scale(factors, out);
      Pack(scores, weights);
    }
    BeginValues(tiles - 1, weights, out);
    WaitForProducts<0>();
    PinSums(out);
    block.template Store<S::kValueDim>(row, lane, sums, out);
  }

  // One warpgroup computes weights while the other's products are queued: barriers 3 and 4 stand
  // for the turns of the first and the second.
  __device__ void WaitForTurn() const {
    asm volatile("bar.sync %0, 256;" ::"r"(3 + first_query / 64) : "memory");
  }
  __device__ void EndTurn() const {
    asm volatile("bar.arrive %0, 256;" ::"r"(4 - first_query / 64) : "memory");
  }

  __device__ static void Scale(const float (&factors)[2], float (&out)[S::kValueDim / 2]) {
    if (factors[0] == 1 && factors[1] == 1) return;
#pragma unroll
    for (int i = 0; i < S::kValueDim / 2; ++i) out[i] *= factors[i / 2 % 2];
  }
  __device__ static void Pack(const float (&scores)[S::kKeys / 2],
                              uint32_t (&weights)[S::kKeys / 4]) {
#pragma unroll
    for (int i = 0; i < S::kKeys / 4; ++i) weights[i] = PackBf16(scores[2 * i], scores[2 * i + 1]);
  }
};

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    FlashKernel(const __grid_constant__ FlashArgs args) {
  extern __shared__ uint8_t shared[];
  __shared__ Barriers barriers;
  // Backwards: the last tiles of a chunk see the most keys, and go first.
  const auto index = static_cast<int32_t>(gridDim.x - 1 - blockIdx.x);
  const QueryTile tile = FindTile(args.tables, index, args.group, S::kRows, args.min_rows);
  if (tile.slice < 0) return;
  const FlashBlock block = FlashBlock::Of(args, tile, blockIdx.y);
  if (block.key_end <= args.first_key) {
    if (args.exp_sums != nullptr) block.StoreNothing();
    return;
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < S::kStages; ++stage) {
      InitBarrier(barriers.keys_filled + stage, S::kWarpgroup);
      InitBarrier(barriers.values_filled + stage, S::kWarpgroup);
      InitBarrier(barriers.keys_free + stage, S::kMultipliers * 4);
      InitBarrier(barriers.values_free + stage, S::kMultipliers * 4);
    }
    FenceNewBarriers();
  }
  __syncthreads();
  const Memory<S> memory = {(SharedAddress(shared) + 1023) / 1024 * 1024, barriers};
  const int tiles = (block.key_end - args.first_key + S::kKeys - 1) / S::kKeys;
  const int warpgroup = static_cast<int>(threadIdx.x) / S::kWarpgroup;
  // The multipliers get registers that the copying warpgroup can spare: 72 and twice 216 are what
  // three times 168 are.
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    Bringer<S>{block, memory}.Run(tiles);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    const int first_query = (warpgroup - 1) * 64;
    const int thread = static_cast<int>(threadIdx.x) % S::kWarpgroup;
    const int lane = thread % 32;
    Multiplier<S>{block, memory, first_query, first_query + thread / 32 * 16 + lane / 4, lane}.Run(
        tiles);
  }
}

using Shape64 = Shape<64, 64>;
using Shape128 = Shape<128, 128>;
using Shape192 = Shape<192, 128>;

template <typename Function>
void WithShape(int64_t key_dim, int64_t value_dim, const Function& function) {
  if (key_dim <= 64 && value_dim <= 64) return function(Shape64());
  if (key_dim <= 128) return function(Shape128());
  function(Shape192());
}

}  // namespace

bool FlashAttentionTakes(int64_t key_dim, int64_t value_dim) {
  return key_dim <= 192 && key_dim % 8 == 0 && value_dim <= 128;
}

int64_t FlashStateFloats(int64_t key_dim, int64_t value_dim) {
  int64_t floats = 0;
  WithShape(key_dim, value_dim, [&]<typename S>(S) { floats = kStateExtra + S::kValueDim; });
  return floats;
}

void FlashAttention(tensor::ExecutionContext& context, const FlashArgs& args, int64_t kv_heads,
                    const ops::StepTables& tables) {
  WithShape(args.key_dim, args.value_dim, [&]<typename S>(S) {
    QueueOf(context).Note(
        cudaFuncSetAttribute(FlashKernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             S::kSharedBytes),
        "attention");
    const dim3 grid(static_cast<unsigned>(TileBound(tables, args.group, S::kRows)),
                    static_cast<unsigned>(kv_heads));
    FlashKernel<S><<<grid, S::kThreads, S::kSharedBytes, StreamOf(context)>>>(args);
  });
  NoteLaunch(context, "attention");
}

}  // namespace longspan::backend::cuda
