// Attention over expanded latents (KernelTable::expanded_attention): a block of latents becomes one
// head's keys and values, which then are attended to as if they had been cached.
#pragma once

#include <cstdint>

#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/attention_pack.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/product_kernel.h"

namespace longspan::backend::cpu {

template <typename V, typename Compute, typename Cache>
struct ExpandedBlocks {
  const ExpandedTile& tile;

  void Pack(int64_t first, int64_t count) const {
    const AttentionTile& attention = tile.attention;
    Gather({tile.latents, first, count});
    Expand(tile.key_panels, attention.keys.dim, count, tile.keys);
    Expand(tile.value_panels, attention.values.dim, count, tile.values);
    PackKeys<V, Compute, Compute>({attention.keys, 0, count}, attention.packed_keys);
    PackRopeKeys<V, Compute, Cache>(attention, first, count);
    PackValues<V, Compute, Compute>({attention.values, 0, count}, attention.dim_padded,
                                    attention.packed_values);
  }
  CachePrefetch<Cache> Prefetch(int64_t first, int64_t count) const {
    return {{tile.latents, first, count}, {tile.attention.rope_keys, first, count}};
  }

 private:
  int64_t row_bytes() const { return tile.latents.dim * static_cast<int64_t>(sizeof(Compute)); }

  void Gather(const CacheRows<Cache>& latents) const {
    for (int64_t token = 0; token < latents.count; ++token)
      Convert<V, Cache, Compute>(latents.At(token), tile.rows + token * row_bytes(),
                                 tile.latents.dim);
  }

  // out [count, dim] = rows W^T.
  void Expand(const uint32_t* panels, int64_t dim, int64_t count, char* out) const {
    ProductBlock block;
    block.x = tile.rows;
    block.x_stride = row_bytes();
    block.rows = count;
    block.columns = tile.latents.dim;
    block.out_stride = dim;
    block.out_type = sizeof(Compute) == 2 ? kBfloat : kFloat;
    block.partial_sums = tile.partial_sums;
    for (int64_t column = 0; column < dim; column += kPanelColumns) {
      block.panel = panels + column / kPanelColumns * tile.panel_words;
      block.panel_columns = dim - column < kPanelColumns ? dim - column : kPanelColumns;
      block.out = out + column * static_cast<int64_t>(sizeof(Compute));
      Product<V, sizeof(Compute) == 2>(block);
    }
  }
};

template <typename V, typename Compute, typename Cache>
void AttendExpandedTile(const ExpandedTile& tile) {
  AttendBlocks<V, Compute>(tile.attention, ExpandedBlocks<V, Compute, Cache>{tile});
}

}  // namespace longspan::backend::cpu
