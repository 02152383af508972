// The rows of a block of FlashAttention: where queries come from, running sums, where results go.
#pragma once

#include "backend/cuda/flash_attention.cuh"
#include "backend/cuda/partial_merge.cuh"
#include "backend/cuda/tensor_core.cuh"

namespace longspan::backend::cuda {

// Of a thread's two rows.
struct FlashSums {
  float maxima[2] = {-INFINITY, -INFINITY};  // of scores before scaling
  float sums[2] = {0, 0};                    // of this lane's columns alone

  // Scores to weights; what was summed before is to be multiplied by the factors.
  template <int kCount>
  __device__ void Weigh(float scale_log2, float (&scores)[kCount], float (&factors)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = maxima[half];
#pragma unroll
      for (int i = half * 2; i < kCount; i += 4)
        largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
      largest = RowMax(largest);
      // Rows that have seen nothing yet: no weight is anything but 0.
      const float base = largest == -INFINITY ? 0 : largest * scale_log2;
      factors[half] =
          largest == maxima[half] ? 1 : Exp2(__fmaf_rn(maxima[half], scale_log2, -base));
      maxima[half] = largest;
      float sum = sums[half] * factors[half];
#pragma unroll
      for (int i = half * 2; i < kCount; i += 4) {
        scores[i] = Exp2(__fmaf_rn(scores[i], scale_log2, -base));
        scores[i + 1] = Exp2(__fmaf_rn(scores[i + 1], scale_log2, -base));
        sum += scores[i] + scores[i + 1];
      }
      sums[half] = sum;
    }
  }
};

struct FlashBlock {
  const FlashArgs& args;
  QueryTile tile;
  int64_t head;           // of keys
  int32_t first_visible;  // positions before it are seen by all rows
  int32_t key_end;        // positions from here on are not read
  const int32_t* page_list;

  __device__ static FlashBlock Of(const FlashArgs& args, const QueryTile& tile, int64_t head) {
    const int32_t* positions = args.tables.positions + tile.slice_row;
    const int32_t first = positions[tile.first / args.group];
    const int32_t last = positions[(tile.first + tile.count - 1) / args.group];
    return {args,
            tile,
            head,
            first + 1,
            min(last + 1, args.last_key),
            args.tables.page_table + tile.slice * args.tables.page_table_stride};
  }

  // A row of the tile, behind its end the last one.
  struct Row {
    int32_t row;   // of the op
    int32_t head;  // of queries
    bool real;
  };
  __device__ Row RowOf(int row) const {
    const int query = tile.first + min(row, tile.count - 1);
    const int token = query / args.group;
    return {tile.slice_row + token, static_cast<int>(head) * args.group + query % args.group,
            row < tile.count};
  }
  __device__ int32_t PositionOf(const Row& row) const { return args.tables.positions[row.row]; }

  // Eight elements of a query; they need not be aligned. Zeros behind the dimension.
  __device__ void QueryWords(int query, int unit, uint32_t (&words)[4]) const {
    const bool wide = args.query_row_stride % 8 == 0 && args.query_head_stride % 8 == 0 &&
                      reinterpret_cast<uintptr_t>(args.queries) % 16 == 0;
    const Row row = RowOf(query);
    const Bf16* from = args.queries + row.row * args.query_row_stride +
                       row.head * args.query_head_stride + unit * 8;
    if (unit * 8 >= args.key_dim) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = 0;
    } else if (wide) {
      const uint4 loaded = *reinterpret_cast<const uint4*>(from);
      words[0] = loaded.x;
      words[1] = loaded.y;
      words[2] = loaded.z;
      words[3] = loaded.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = PackBf16(ToFloat(from[2 * i]), ToFloat(from[2 * i + 1]));
    }
  }

  template <int kValueDim>
  __device__ float* StateOf(const Row& row) const {
    const int heads = static_cast<int>(gridDim.y) * args.group;
    return args.state +
           (static_cast<int64_t>(row.row) * heads + row.head) * (kStateExtra + kValueDim);
  }

  // Sums of rows `row` and `row` + 8 before the first key.
  template <int kValueDim>
  __device__ void Begin(int row, int lane, FlashSums& sums, float (&out)[kValueDim / 2]) const {
    if (args.first_key == 0) {
#pragma unroll
      for (float& each : out) each = 0;
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* state = StateOf<kValueDim>(RowOf(row + half * 8));
      sums.maxima[half] = state[0];
      sums.sums[half] = lane % 4 == 0 ? state[1] : 0;
#pragma unroll
      for (int n = 0; n < kValueDim / 8; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          out[n * 4 + half * 2 + j] = state[kStateExtra + n * 8 + lane % 4 * 2 + j];
    }
  }

  __device__ float2* ExpSumAt(const Row& row) const {
    return args.exp_sums + row.row * args.exp_sum_stride + row.head;
  }

  // Where no row of the tile sees a key.
  __device__ void StoreNothing() const {
    for (int i = static_cast<int>(threadIdx.x); i < tile.count * args.value_dim;
         i += static_cast<int>(blockDim.x)) {
      const Row place = RowOf(i / args.value_dim);
      const int column = i % args.value_dim;
      args.out[place.row * args.out_row_stride + place.head * args.out_head_stride + column] =
          __float2bfloat16_rn(0);
      if (column == 0) *ExpSumAt(place) = ExpSumOf(0, 0);
    }
  }

  // Rows that end in this block to the output, others to the state.
  template <int kValueDim>
  __device__ void Store(int row, int lane, const FlashSums& sums,
                        const float (&out)[kValueDim / 2]) const {
    const bool wide = reinterpret_cast<uintptr_t>(args.out) % 4 == 0 &&
                      args.out_row_stride % 2 == 0 && args.out_head_stride % 2 == 0 &&
                      args.value_dim % 2 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Row place = RowOf(row + half * 8);
      const float sum = RowSum(sums.sums[half]);
      if (!place.real) continue;
      const int32_t position = PositionOf(place);
      if (args.first_key > 0 && position < args.first_key) continue;
      if (position >= args.last_key) {
        float* state = StateOf<kValueDim>(place);
        if (lane % 4 == 0) {
          state[0] = sums.maxima[half];
          state[1] = sum;
        }
#pragma unroll
        for (int n = 0; n < kValueDim / 8; ++n)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            state[kStateExtra + n * 8 + lane % 4 * 2 + j] = out[n * 4 + half * 2 + j];
        continue;
      }
      if (args.exp_sums != nullptr && lane % 4 == 0)
        *ExpSumAt(place) = ExpSumOf(sums.maxima[half] * args.scale_log2, sum);
      const float inverse = InverseOf(sum);
      Bf16* to = args.out + place.row * args.out_row_stride + place.head * args.out_head_stride;
#pragma unroll
      for (int n = 0; n < kValueDim / 8; ++n) {
        const int column = n * 8 + lane % 4 * 2;
        const float low = out[n * 4 + half * 2] * inverse;
        const float high = out[n * 4 + half * 2 + 1] * inverse;
        if (wide && column < args.value_dim) {
          *reinterpret_cast<uint32_t*>(to + column) = PackBf16(low, high);
        } else {
          if (column < args.value_dim) to[column] = __float2bfloat16_rn(low);
          if (column + 1 < args.value_dim) to[column + 1] = __float2bfloat16_rn(high);
        }
      }
    }
  }
};

}  // namespace longspan::backend::cuda
