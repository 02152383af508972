// Scores of index selection (KernelTable::index_scores).
#pragma once

#include <cstdint>

#include "backend/cpu/attention_pack.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/product_tile.h"

namespace longspan::backend::cpu {

// Some heads of one query token against some keys. The heads' terms join the keys' scores in the
// order of the heads, whatever the shape of the tile.
template <typename V, typename Compute>
struct IndexTile {
  const IndexBlock* block;
  int64_t token;
  int64_t head;
  int64_t key;

  template <int kRows, int kVectors>
  [[gnu::noinline]] void Run() const {
    const IndexBlock& b = *block;
    const char* query[kRows];
    Accumulators<V, kRows, kVectors> sums;
    LONGSPAN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      query[r] = b.queries + token * b.query_token_stride + (head + r) * b.query_head_stride;
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::Set(0);
    }
    MultiplyAdd<V, sizeof(Compute) == 2>(query, b.packed_keys + key, kAttentionKeys,
                                         Steps<Compute>(b.keys.dim), sums);
    const float* weights = b.head_weights + token * b.head_weights_stride + head;
    float* scores = b.scores + token * kAttentionKeys + key;
    const auto scale = V::Set(b.scale);
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      auto score = head == 0 ? V::Set(0) : V::Load(scores + v * V::kWidth);
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r)
        score =
            V::MulAdd(V::Set(weights[r]), V::Max(V::Mul(sums.at[r][v], scale), V::Set(0)), score);
      V::Store(scores + v * V::kWidth, score);
    }
  }
};

template <typename V, typename Compute, typename Cache>
void IndexScores(const IndexBlock& block) {
  PackKeys<V, Compute, Cache>({block.keys, block.first_key, block.count}, block.packed_keys);
  constexpr int64_t kTileColumns = int64_t{V::kWidth} * V::kTileVectors;
  const int64_t keys = PaddedKeys(block.count);
  // A piece of the keys stays near for all queries.
  for (int64_t key = 0; key < keys; key += kTileColumns)
    for (int64_t token = 0; token < block.tokens; ++token)
      for (int64_t head = 0; head < block.heads; head += V::kTileRows)
        WithTileShape<V::kTileRows, V::kTileVectors>(
            block.heads - head, (keys - key) / V::kWidth,
            IndexTile<V, Compute>{&block, token, head, key});
}

}  // namespace longspan::backend::cpu
