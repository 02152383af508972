#include "backend/cuda/flash_attention.cuh"
#include "backend/cuda/stream.h"
#include "backend/cuda/tensor_core.cuh"

namespace longspan::backend::cuda {
namespace {

// A block computes kRows queries, 32 to a warp, over tiles of kKeys keys, of which one is computed
// while the next one is on its way.
template <int kKeyDim_, int kValueDim_, int kWarps_>
struct Shape {
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr int kValueDim = kValueDim_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = 32 * kWarps;
  static constexpr int kKeys = 64;
  static constexpr int kStages = 2;
  static constexpr int kQueryBytes = kRows * kKeyDim * 2;
  static constexpr int kKeyBytes = kKeys * kKeyDim * 2;
  static constexpr int kValueBytes = kKeys * kValueDim * 2;
  static constexpr int kOffsetBytes = kStages * kKeys * 8;
  static constexpr int kSharedBytes =
      kQueryBytes + kStages * (kKeyBytes + kValueBytes) + kOffsetBytes;
};

template <typename S>
struct Block {
  using QueryTileOf = SwizzledTile<S::kKeyDim>;

  const FlashArgs& args;
  int64_t head;  // of keys
  int32_t first_position;
  QueryTile tile;
  int32_t key_end;  // positions from here on are not read
  const int32_t* page_list;
  uint32_t shared;
  int64_t* offsets;  // [kStages][kKeys]: rows of keys, or -1
  int tid;

  __device__ SwizzledTile<S::kKeyDim> Queries() const { return {shared}; }
  __device__ SwizzledTile<S::kKeyDim> Keys(int stage) const {
    return {shared + S::kQueryBytes + stage * S::kKeyBytes};
  }
  __device__ SwizzledTile<S::kValueDim> Values(int stage) const {
    return {shared + S::kQueryBytes + S::kStages * S::kKeyBytes + stage * S::kValueBytes};
  }

  // Of the tile of keys from position `key` on.
  __device__ void FindKeys(int stage, int32_t key) {
    if (tid >= S::kKeys) return;
    const int32_t position = key + tid;
    int64_t row = -1;
    if (position < key_end)
      row = args.paged ? args.pages.RowOf(page_list, head, position)
                       : head * args.rows_per_head + (position - args.first_key);
    offsets[stage * S::kKeys + tid] = row;
  }

  template <int kDim>
  __device__ void Load(const SwizzledTile<kDim>& to, int stage, const Bf16* from, int64_t stride,
                       int dim) {
    constexpr int kChunks = kDim / 8;
#pragma unroll
    for (int i = 0; i < S::kKeys * kChunks / S::kThreads; ++i) {
      const int index = tid + i * S::kThreads;
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      const int64_t place = offsets[stage * S::kKeys + row];
      const bool valid = place >= 0 && chunk * 8 < dim;
      CopyAsync16(to.At(row, chunk), from + (valid ? place * stride + chunk * 8 : 0), valid);
    }
  }
  __device__ void LoadKeysAndValues(int stage) {
    Load(Keys(stage), stage, args.keys, args.key_stride, args.key_dim);
    Load(Values(stage), stage, args.values, args.value_stride, (args.value_dim + 7) / 8 * 8);
    CommitCopies();
  }

  // A row of the tile, behind its end the last one.
  struct Row {
    int32_t row;   // of the op
    int32_t head;  // of queries
    int32_t position;
    bool real;
  };
  __device__ Row RowOf(int row) const {
    const int query = tile.first + min(row, tile.count - 1);
    const int token = query / args.group;
    return {tile.slice_row + token, static_cast<int>(head) * args.group + query % args.group,
            first_position + token, row < tile.count};
  }

  // Straight into shared memory; queries need not be aligned.
  __device__ void LoadQueries() {
    constexpr int kChunks = S::kKeyDim / 8;
    const bool wide = args.query_row_stride % 8 == 0 && args.query_head_stride % 8 == 0 &&
                      reinterpret_cast<uintptr_t>(args.queries) % 16 == 0;
    for (int index = tid; index < S::kRows * kChunks; index += S::kThreads) {
      const int chunk = index % kChunks;
      const Row row = RowOf(index / kChunks);
      const Bf16* from =
          args.queries + row.row * args.query_row_stride + row.head * args.query_head_stride;
      const uint32_t to = Queries().At(index / kChunks, chunk);
      uint32_t words[4] = {0, 0, 0, 0};
      if (chunk * 8 < args.key_dim) {
        if (wide) {
          const uint4 loaded = *reinterpret_cast<const uint4*>(from + chunk * 8);
          words[0] = loaded.x;
          words[1] = loaded.y;
          words[2] = loaded.z;
          words[3] = loaded.w;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            words[i] =
                PackBf16(ToFloat(from[chunk * 8 + 2 * i]), ToFloat(from[chunk * 8 + 2 * i + 1]));
        }
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(words[0]),
                   "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
  }
};

// What a warp knows of its 32 queries: rows lane / 4 + 8 i of them.
template <typename S>
struct Sums {
  static constexpr int kTiles = S::kValueDim / 8;
  float out[2][kTiles][4];
  float maxima[4];  // of scores before scaling
  float sums[4];    // of this lane's columns alone

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      maxima[i] = -INFINITY;
      sums[i] = 0;
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[m][n][i] = 0;
  }
};

template <typename S>
__device__ void Score(const Block<S>& block, int stage, int warp, int lane,
                      float (&scores)[2][S::kKeys / 8][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < S::kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][n][i] = 0;
  const auto queries = block.Queries();
  const auto keys = block.Keys(stage);
#pragma unroll
  for (int k = 0; k < S::kKeyDim; k += 16) {
    uint32_t a[2][4];
    queries.LoadA(a[0], warp * 32, k, lane);
    queries.LoadA(a[1], warp * 32 + 16, k, lane);
#pragma unroll
    for (int n = 0; n < S::kKeys; n += 16) {
      uint32_t b[4];
      keys.LoadB(b, n, k, lane);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        MultiplyAdd(scores[m][n / 8], a[m], b[0], b[1]);
        MultiplyAdd(scores[m][n / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Scores to weights; what was summed before is scaled to the new maxima.
template <typename S>
__device__ void Weigh(float scale_log2, float (&scores)[2][S::kKeys / 8][4], Sums<S>& sums) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 2 * m + half;
      float largest = sums.maxima[i];
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n)
        largest = fmaxf(largest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      largest = RowMax(largest);
      // Rows that have seen nothing yet: no weight is anything but 0.
      const float base = largest == -INFINITY ? 0 : largest * scale_log2;
      if (largest != sums.maxima[i]) {
        const float factor = Exp2(sums.maxima[i] * scale_log2 - base);
        sums.maxima[i] = largest;
        sums.sums[i] *= factor;
#pragma unroll
        for (int n = 0; n < Sums<S>::kTiles; ++n) {
          sums.out[m][n][2 * half] *= factor;
          sums.out[m][n][2 * half + 1] *= factor;
        }
      }
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[m][n][j] = Exp2(__fmaf_rn(scores[m][n][j], scale_log2, -base));
          sums.sums[i] += scores[m][n][j];
        }
    }
  }
}

template <typename S>
__device__ void AddValues(const Block<S>& block, int stage, int lane,
                          const float (&weights)[2][S::kKeys / 8][4], Sums<S>& sums) {
  const auto values = block.Values(stage);
#pragma unroll
  for (int k = 0; k < S::kKeys; k += 16) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights[m][k / 8 + i / 2][i % 2 * 2];
        a[m][i] = PackBf16(pair[0], pair[1]);
      }
#pragma unroll
    for (int n = 0; n < S::kValueDim; n += 16) {
      uint32_t b[4];
      values.LoadBTransposed(b, k, n, lane);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        MultiplyAdd(sums.out[m][n / 8], a[m], b[0], b[1]);
        MultiplyAdd(sums.out[m][n / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <typename S>
__device__ float* StateOf(const FlashArgs& args, const typename Block<S>::Row& row, int heads) {
  return args.state +
         (static_cast<int64_t>(row.row) * heads + row.head) * (kStateExtra + S::kValueDim);
}

template <typename S>
__device__ void LoadState(const Block<S>& block, int warp, int lane, Sums<S>& sums) {
  const int heads = static_cast<int>(gridDim.y) * block.args.group;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto row = block.RowOf(warp * 32 + i * 8 + lane / 4);
    const float* state = StateOf<S>(block.args, row, heads);
    sums.maxima[i] = state[0];
    sums.sums[i] = lane % 4 == 0 ? state[1] : 0;
#pragma unroll
    for (int n = 0; n < Sums<S>::kTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        sums.out[i / 2][n][i % 2 * 2 + j] = state[kStateExtra + n * 8 + lane % 4 * 2 + j];
  }
}

// Rows that end in this block to the output, others to the state.
template <typename S>
__device__ void Store(const Block<S>& block, int warp, int lane, Sums<S>& sums) {
  const FlashArgs& args = block.args;
  const int heads = static_cast<int>(gridDim.y) * args.group;
  const bool wide = reinterpret_cast<uintptr_t>(args.out) % 4 == 0 &&
                    args.out_row_stride % 2 == 0 && args.out_head_stride % 2 == 0 &&
                    args.value_dim % 2 == 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto row = block.RowOf(warp * 32 + i * 8 + lane / 4);
    const float sum = RowSum(sums.sums[i]);
    if (!row.real || row.position < args.first_key) continue;
    if (row.position >= args.last_key) {
      float* state = StateOf<S>(args, row, heads);
      if (lane % 4 == 0) {
        state[0] = sums.maxima[i];
        state[1] = sum;
      }
#pragma unroll
      for (int n = 0; n < Sums<S>::kTiles; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          state[kStateExtra + n * 8 + lane % 4 * 2 + j] = sums.out[i / 2][n][i % 2 * 2 + j];
      continue;
    }
    const float inverse = 1 / sum;
    Bf16* out = args.out + row.row * args.out_row_stride + row.head * args.out_head_stride;
#pragma unroll
    for (int n = 0; n < Sums<S>::kTiles; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      const float low = sums.out[i / 2][n][i % 2 * 2] * inverse;
      const float high = sums.out[i / 2][n][i % 2 * 2 + 1] * inverse;
      if (wide && column < args.value_dim) {
        *reinterpret_cast<uint32_t*>(out + column) = PackBf16(low, high);
      } else {
        if (column < args.value_dim) out[column] = __float2bfloat16_rn(low);
        if (column + 1 < args.value_dim) out[column + 1] = __float2bfloat16_rn(high);
      }
    }
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kWarps == 4 ? 2 : 1)
    FlashKernel(const __grid_constant__ FlashArgs args) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / 32;
  const int lane = tid % 32;
  // Backwards: the last tiles of a chunk see the most keys, and go first.
  const auto index = static_cast<int32_t>(gridDim.x - 1 - blockIdx.x);
  const QueryTile tile = FindTile(args.tables, index, args.group, S::kRows, args.min_rows);
  if (tile.slice < 0) return;
  const int32_t first_position = args.tables.positions[tile.slice_row];
  const int32_t first = first_position + tile.first / args.group;
  const int32_t last = first_position + (tile.first + tile.count - 1) / args.group;
  if (last < args.first_key) return;

  Block<S> block = {args,
                    blockIdx.y,
                    first_position,
                    tile,
                    min(last + 1, args.last_key),
                    args.tables.page_table + tile.slice * args.tables.page_table_stride,
                    SharedAddress(memory),
                    reinterpret_cast<int64_t*>(memory + S::kSharedBytes - S::kOffsetBytes),
                    tid};
  block.FindKeys(0, args.first_key);
  block.LoadQueries();
  __syncthreads();
  block.LoadKeysAndValues(0);
  block.FindKeys(1, args.first_key + S::kKeys);

  Sums<S> sums;
  if (args.first_key == 0)
    sums.Clear();
  else
    LoadState(block, warp, lane, sums);
  int stage = 0;
  for (int32_t key = args.first_key; key < block.key_end; key += S::kKeys, stage ^= 1) {
    WaitForCopies<0>();
    __syncthreads();
    if (key + S::kKeys < block.key_end) block.LoadKeysAndValues(stage ^ 1);
    block.FindKeys(stage, key + 2 * S::kKeys);
    float scores[2][S::kKeys / 8][4];
    Score(block, stage, warp, lane, scores);
    if (key + S::kKeys > first + 1 || key + S::kKeys > block.key_end) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t position = block.RowOf(warp * 32 + i * 8 + lane / 4).position;
        const int32_t visible = min(position + 1, block.key_end) - key;
#pragma unroll
        for (int n = 0; n < S::kKeys / 8; ++n)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (n * 8 + lane % 4 * 2 + j >= visible) scores[i / 2][n][i % 2 * 2 + j] = -INFINITY;
      }
    }
    Weigh<S>(args.scale_log2, scores, sums);
    AddValues(block, stage, lane, scores, sums);
  }
  Store(block, warp, lane, sums);
}

using Shape64 = Shape<64, 64, 4>;
using Shape128 = Shape<128, 128, 4>;
using Shape192 = Shape<192, 128, 8>;

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
