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
  const char* const* queries;  // of the heads from `head` on, as MultiplyAdd reads them
  int64_t key;

  template <int kRows, int kVectors>
  [[gnu::noinline]] void Run() const {
    const IndexBlock& b = *block;
    Accumulators<V, kRows, kVectors> sums;
    LONGSPAN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::Set(0);
    }
    MultiplyAdd<V, sizeof(Compute) == 2>(queries, b.packed_keys + key, kAttentionKeys,
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
  constexpr bool kWidens = kWidensRows<V, sizeof(Compute) == 2>;
  const int64_t all_keys = PaddedKeys(block.count);
  // A piece of the keys stays near for all queries, unless these cost more to have.
  const int64_t piece = kWidens ? all_keys : kTileColumns;
  for (int64_t first = 0; first < all_keys; first += piece) {
    for (int64_t token = 0; token < block.tokens; ++token) {
      for (int64_t head = 0; head < block.heads; head += V::kTileRows) {
        const char* queries[V::kTileRows];
        const int64_t left = block.heads - head;
        const int64_t count = left < V::kTileRows ? left : V::kTileRows;
        for (int64_t r = 0; r < count; ++r)
          queries[r] = block.queries + token * block.query_token_stride +
                       (head + r) * block.query_head_stride;
        if constexpr (kWidens)
          WidenRows<V>(queries, count, block.keys.dim, block.wide_queries,
                       PaddedFloats(block.keys.dim));
        const int64_t end = first + piece < all_keys ? first + piece : all_keys;
        for (int64_t key = first; key < end; key += kTileColumns)
          WithTileShape<V::kTileRows, V::kTileVectors>(
              left, (all_keys - key) / V::kWidth,
              IndexTile<V, Compute>{&block, token, head, queries, key});
      }
    }
  }
}

}  // namespace longspan::backend::cpu
