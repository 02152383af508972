// Scores of the lightning indexer: a block's rows with a tile of keys. A score's bits do not depend
// on the other rows nor on where tiles begin; on tensor cores heads are summed in pairs and fours,
// not one after the other.
#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/step_rows.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace longspan::backend::cuda {

constexpr int kIndexRows = 2;    // of a block, successive ones of a slice
constexpr int kIndexKeys = 64;   // of a tile
constexpr int kIndexGroups = 4;  // of heads, which are summed apart
constexpr int kIndexThreads = 32 * kIndexRows * kIndexGroups;

struct IndexArgs {
  const void* queries;
  int64_t query_row_stride;
  int64_t query_head_stride;
  const float* head_weights;
  int64_t weight_stride;
  const void* keys;
  int heads;
  int dim;
  CachePages pages;
  DeviceTables tables;
  float scale;
};

// partial[row][group][key]: sums over the heads of a group. All kinds of scorers have
//   Begin(first_row, rows): queries of successive rows; a barrier follows
//   Load(stage, first position, end): puts keys on their way, zeros from `end` on
//   Score(stage, partial): behind a barrier that follows Arrive()
using IndexPartials = float[kIndexRows][kIndexGroups][kIndexKeys];

// bf16 queries and keys, up to 64 heads of up to 128: a warp has 16 heads of a row.
struct TensorScorer {
  static constexpr int kDim = 128;
  static constexpr int kStages = 3;
  static constexpr int kTileBytes = kIndexKeys * kDim * 2;
  static int SharedBytes(const IndexArgs&) { return kStages * kTileBytes; }

  const IndexArgs& args;
  unsigned char* memory;
  const int32_t* page_list;
  uint32_t queries[kDim / 16][4];
  float weights[2];

  __device__ TensorScorer(const IndexArgs& index_args, unsigned char* shared)
      : args(index_args), memory(shared) {}

  __device__ SwizzledTile<kDim> Keys(int stage) const {
    return {SharedAddress(memory) + stage * kTileBytes};
  }

  // Straight from memory: every lane takes the pairs that its fragments hold.
  __device__ void Begin(int32_t first_row, int32_t rows) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t row = first_row + min(warp / kIndexGroups, rows - 1);
    const auto* data = static_cast<const Bf16*>(args.queries) + row * args.query_row_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = warp % kIndexGroups * 16 + half * 8 + lane / 4;
      weights[half] = head < args.heads ? args.head_weights[row * args.weight_stride + head] : 0;
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const int column = k * 16 + part * 8 + lane % 4 * 2;
          const bool valid = head < args.heads && column < args.dim;
          const Bf16* from = data + head * args.query_head_stride + column;
          queries[k][part * 2 + half] = valid ? PackBf16(ToFloat(from[0]), ToFloat(from[1])) : 0;
        }
    }
  }

  __device__ void Load(int stage, int32_t first, int32_t end) const {
    constexpr int kChunks = kDim / 8;
    if (first < end) {
#pragma unroll
      for (int i = 0; i < kIndexKeys * kChunks / kIndexThreads; ++i) {
        const int index = static_cast<int>(threadIdx.x) + i * kIndexThreads;
        const int chunk = index % kChunks;
        const int32_t position = first + index / kChunks;
        const bool valid = position < end && chunk * 8 < args.dim;
        const int64_t place = valid ? args.pages.RowOf(page_list, 0, position) : 0;
        CopyAsync16(
            Keys(stage).At(index / kChunks, chunk),
            static_cast<const Bf16*>(args.keys) + place * args.dim + (valid ? chunk * 8 : 0),
            valid);
      }
    }
    CommitCopies();
  }
  __device__ static void Arrive() { WaitForCopies<kStages - 2>(); }

  __device__ void Score(int stage, IndexPartials& partial) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto keys = Keys(stage);
    float sums[kIndexKeys / 8 * 2];
#pragma unroll
    for (int n = 0; n < kIndexKeys; n += 16) {
      float scores[2][4] = {};
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) {
        uint32_t b[4];
        keys.LoadB(b, n, k * 16, lane);
        MultiplyAdd(scores[0], queries[k], b[0], b[1]);
        MultiplyAdd(scores[1], queries[k], b[2], b[3]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          sums[n / 8 * 2 + i * 2 + j] = weights[0] * fmaxf(0, args.scale * scores[i][j]) +
                                        weights[1] * fmaxf(0, args.scale * scores[i][j + 2]);
    }
    // Over the eight lanes that share columns; each ends with two of the sixteen sums.
#pragma unroll
    for (int count = 8; count >= 2; count /= 2) {
      const int step = count * 2;
      const bool upper = (lane & step) != 0;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const float given = upper ? sums[i] : sums[i + count];
        const float kept = upper ? sums[i + count] : sums[i];
        sums[i] = kept + __shfl_xor_sync(0xffffffff, given, step);
      }
    }
    const int first = (lane & 16 ? 8 : 0) + (lane & 8 ? 4 : 0) + (lane & 4 ? 2 : 0);
#pragma unroll
    for (int j = 0; j < 2; ++j)
      partial[warp / kIndexGroups][warp % kIndexGroups][first / 2 * 8 + lane % 4 * 2 + j] = sums[j];
  }
};

// Any types and sizes, in f32.
template <typename Query, typename Cache>
struct PlainScorer {
  static constexpr int kStages = 2;
  static int SharedBytes(const IndexArgs& args) {
    return (kIndexRows * args.heads * args.dim + kStages * kIndexKeys * (args.dim | 1)) * 4;
  }

  const IndexArgs& args;
  float* memory;
  const int32_t* page_list;
  const float* weights;
  int rows;

  __device__ PlainScorer(const IndexArgs& index_args, unsigned char* shared)
      : args(index_args), memory(reinterpret_cast<float*>(shared)) {}

  __device__ float* Keys(int stage) const {
    return memory + kIndexRows * args.heads * args.dim + stage * kIndexKeys * (args.dim | 1);
  }

  __device__ void Begin(int32_t first_row, int32_t count) {
    rows = count;
    weights = args.head_weights + first_row * args.weight_stride;
    const int total = rows * args.heads * args.dim;
    for (int i = static_cast<int>(threadIdx.x); i < total; i += kIndexThreads) {
      const int head = i / args.dim % args.heads;
      const int64_t row = first_row + i / args.dim / args.heads;
      memory[i] = ToFloat(
          static_cast<const Query*>(args.queries)[row * args.query_row_stride +
                                                  head * args.query_head_stride + i % args.dim]);
    }
  }

  __device__ void Load(int stage, int32_t first, int32_t end) const {
    float* keys = Keys(stage);
    for (int i = static_cast<int>(threadIdx.x); i < kIndexKeys * args.dim; i += kIndexThreads) {
      const int key = i / args.dim;
      const int column = i % args.dim;
      if (first + key >= end) break;
      const int64_t place = args.pages.RowOf(page_list, 0, first + key);
      keys[key * (args.dim | 1) + column] =
          ToFloat(static_cast<const Cache*>(args.keys)[place * args.dim + column]);
    }
  }
  __device__ static void Arrive() {}

  __device__ void Score(int stage, IndexPartials& partial) const {
    for (int i = static_cast<int>(threadIdx.x); i < rows * kIndexGroups * kIndexKeys;
         i += kIndexThreads) {
      const int key = i % kIndexKeys;
      const int group = i / kIndexKeys % kIndexGroups;
      const int row = i / kIndexKeys / kIndexGroups;
      const float* elements = Keys(stage) + key * (args.dim | 1);
      float sum = 0;
      for (int head = group * args.heads / kIndexGroups;
           head < (group + 1) * args.heads / kIndexGroups; ++head) {
        const float* query = memory + (row * args.heads + head) * args.dim;
        float dot = 0;
        for (int d = 0; d < args.dim; ++d) dot = fmaf(query[d], elements[d], dot);
        sum += weights[row * args.weight_stride + head] * fmaxf(0, args.scale * dot);
      }
      partial[row][group][key] = sum;
    }
  }
};

}  // namespace longspan::backend::cuda
