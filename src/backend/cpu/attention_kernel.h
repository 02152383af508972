// Blocked attention over the paged cache with an online softmax (KernelTable::attention), after
// FlashAttention (Dao et al. 2022).
//
// A row's result does not depend on the rows beside it: its blocks of keys begin at fixed positions
// and are merged in order; keys beyond its own position take part with probability exactly 0, which
// changes no sum, no maximum, and scales by exactly 1. Segments of blocks have sums of their own,
// merged in order likewise (Flash-Decoding, Dao et al. 2023); those of a segment that begins behind
// the row's position are finite, mean nothing, and are merged with weight 0.
#pragma once

#include <cstdint>

#include "backend/cpu/attention_pack.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/product_tile.h"
#include "backend/cpu/simd_math.h"

namespace longspan::backend::cpu {

// Below every score, and finite: its distance to any other is a number.
constexpr float kMaskedScore = -1e30f;

template <typename V, typename Compute>
struct FewRowsStep;

// A few query rows against one block of keys, in the first-level cache.
template <typename V, typename Compute>
struct AttentionStep {
  static constexpr bool kBf16 = sizeof(Compute) == 2;
  static constexpr bool kWidens = kWidensRows<V, kBf16>;
  using Row = RowElement<V, kBf16>;
  // Some register tiles: a piece of the keys stays near for all of them, and the reductions of one
  // row overlap with another's.
  static constexpr int kRows = 4 * V::kTileRows;
  static_assert(kRows <= kAttentionStepRows);
  const AttentionTile* tile;
  int64_t first_token;   // of the block of keys
  int64_t first_row;     // row = token * group + head
  int64_t rows;          // up to kRows
  int64_t limit[kRows];  // keys of the block that every row sees; may be negative
  int64_t visible;       // the largest limit
  const char* query[kRows];
  const char* rope_query[kRows];
  int64_t token;  // and head: of the row after these
  int64_t head;
  alignas(64) float scores[kRows * kAttentionKeys];
  alignas(64) Row probabilities[kRows * kAttentionKeys];
  alignas(64) float rescale[32];

  // Goes before the first rows.
  void Begin(int64_t first_key) {
    first_token = first_key;
    first_row = rows = token = head = 0;
  }

  // Goes on to the next rows that see some of the block's `count` keys; false after the last.
  bool NextRows(int64_t count) {
    const int64_t all = tile->tokens * tile->group;
    do {
      first_row += rows;
      if (first_row == all) return false;
      rows = all - first_row < kRows ? all - first_row : kRows;
      for (int64_t r = 0; r < rows; ++r) {
        query[r] =
            tile->queries + token * tile->query_token_stride + head * tile->query_head_stride;
        rope_query[r] = tile->rope_queries + token * tile->rope_query_token_stride +
                        head * tile->rope_query_head_stride;
        limit[r] = tile->positions[token] + 1 - first_token;
        if (limit[r] > count) limit[r] = count;
        if (++head == tile->group) {
          head = 0;
          ++token;
        }
      }
      visible = limit[rows - 1];
    } while (visible <= 0);
    if constexpr (kWidens) WidenQueries();
    return true;
  }

  void Update() {
    RunTiles<Scores>(padded_keys());
    MaskScores();
    UpdateSoftmax();
    RunTiles<Outputs>(tile->dim_padded);
  }

 private:
  friend struct FewRowsStep<V, Compute>;

  int64_t padded_keys() const { return PaddedKeys(visible); }

  void WidenQueries() {
    const int64_t dim = PaddedFloats(tile->keys.dim);
    const int64_t stride = dim + PaddedFloats(tile->rope_keys.dim);
    WidenRows<V>(query, rows, tile->keys.dim, tile->wide_queries, stride);
    if (tile->rope_keys.dim > 0)
      WidenRows<V>(rope_query, rows, tile->rope_keys.dim, tile->wide_queries + dim, stride);
  }

  struct Scores {
    AttentionStep* step;
    int64_t row;
    int64_t key;
    template <int kTileRows, int kVectors, typename Fetch = NoFetch>
    [[gnu::noinline]] void Run(Fetch fetch = {}) const;
  };
  struct Outputs {
    AttentionStep* step;
    int64_t row;
    int64_t dim;
    template <int kTileRows, int kVectors>
    [[gnu::noinline]] void Run() const;
  };

  // Runs Tile over all rows and the columns [0, columns), a multiple of the vector's width.
  template <typename Tile>
  void RunTiles(int64_t columns) {
    constexpr int64_t kTileColumns = int64_t{V::kWidth} * V::kTileVectors;
    for (int64_t column = 0; column < columns; column += kTileColumns)
      for (int64_t row = 0; row < rows; row += V::kTileRows)
        WithTileShape<V::kTileRows, V::kTileVectors>(rows - row, (columns - column) / V::kWidth,
                                                     Tile{this, row, column});
  }

  void MaskScores() {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t key = limit[r] > 0 ? limit[r] : 0; key < padded_keys(); ++key)
        scores[r * kAttentionKeys + key] = kMaskedScore;
  }

  void UpdateSoftmax() {
    float* maxima = tile->result.maxima + first_row;
    for (float& r : rescale) r = 0;
    for (int64_t r = 0; r < rows; ++r) {
      auto max = V::Set(maxima[r]);
      for (int64_t key = 0; key < padded_keys(); key += V::kWidth)
        max = V::Max(max, V::Load(scores + r * kAttentionKeys + key));
      const float largest = V::ReduceMax(max);
      rescale[r] = maxima[r] - largest;
      maxima[r] = largest;
    }
    for (int i = 0; i < rows; i += V::kWidth)
      V::Store(rescale + i, Exp2OfNegative<V>(V::Load(rescale + i)));
    for (int64_t r = 0; r < rows; ++r) UpdateRow(r, V::Set(maxima[r]), V::Set(rescale[r]));
  }

  [[gnu::always_inline]] void UpdateRow(int64_t r, typename V::Vec max, typename V::Vec factor) {
    float* denominator = tile->result.denominators + (first_row + r) * 16;
    auto sum = V::Mul(V::Load(denominator), factor);
    Row* rounded = probabilities + r * kAttentionKeys;
    for (int64_t key = 0; key < padded_keys(); key += V::kWidth)
      V::Store(rounded + key,
               Exp2OfNegative<V, kBf16>(V::Sub(V::Load(scores + r * kAttentionKeys + key), max)));
    // The sum is of what the values are weighted with.
    if constexpr (kBf16 && V::kBf16Dot) {
      const auto ones = V::PairsOfOnes();
      for (int64_t key = 0; key < padded_keys(); key += 2 * V::kWidth)
        sum = V::DotBf16(sum, V::LoadWords(reinterpret_cast<uint32_t*>(rounded + key)), ones);
    } else {
      for (int64_t key = 0; key < padded_keys(); key += V::kWidth)
        sum = V::Add(sum, V::Load(rounded + key));
    }
    V::Store(denominator, sum);
  }
};

template <typename V, typename Compute>
template <int kTileRows, int kVectors, typename Fetch>
void AttentionStep<V, Compute>::Scores::Run(Fetch fetch) const {
  const AttentionTile& tile = *step->tile;
  Accumulators<V, kTileRows, kVectors> sums;
  LONGSPAN_UNROLL
  for (int r = 0; r < kTileRows; ++r) {
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::Set(0);
  }
  const uint32_t* keys = tile.packed_keys + key;
  const int64_t steps = Steps<Compute>(tile.keys.dim);
  MultiplyAdd<V, kBf16>(step->query + row, keys, kAttentionKeys, steps, sums, fetch);
  if (tile.rope_keys.dim > 0)
    MultiplyAdd<V, kBf16>(step->rope_query + row, keys + steps * kAttentionKeys, kAttentionKeys,
                          Steps<Compute>(tile.rope_keys.dim), sums);
  const auto scale = V::Set(tile.scale_log2);
  float* out = step->scores + row * kAttentionKeys + key;
  LONGSPAN_UNROLL
  for (int r = 0; r < kTileRows; ++r) {
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      V::Store(out + r * kAttentionKeys + v * V::kWidth, V::Mul(sums.at[r][v], scale));
  }
}

template <typename V, typename Compute>
template <int kTileRows, int kVectors>
void AttentionStep<V, Compute>::Outputs::Run() const {
  const AttentionTile& tile = *step->tile;
  const char* a[kTileRows];
  Accumulators<V, kTileRows, kVectors> sums;
  float* out = tile.result.sums + (step->first_row + row) * tile.dim_padded + dim;
  LONGSPAN_UNROLL
  for (int r = 0; r < kTileRows; ++r) {
    a[r] = reinterpret_cast<const char*>(step->probabilities + (row + r) * kAttentionKeys);
    const auto factor = V::Set(step->rescale[row + r]);
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      sums.at[r][v] = V::Mul(V::Load(out + r * tile.dim_padded + v * V::kWidth), factor);
  }
  const int64_t steps = (step->visible * static_cast<int64_t>(sizeof(Compute)) + 3) / 4;
  MultiplyAdd<V, kBf16>(a, tile.packed_values + dim, tile.dim_padded, steps, sums);
  LONGSPAN_UNROLL
  for (int r = 0; r < kTileRows; ++r) {
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      V::Store(out + r * tile.dim_padded + v * V::kWidth, sums.at[r][v]);
  }
}

template <typename V, typename Compute>
void WriteAttention(const AttentionTile& tile) {
  for (int64_t row = 0; row < tile.tokens * tile.group; ++row) {
    const auto denominator = V::Set(V::ReduceAdd(V::Load(tile.result.denominators + row * 16)));
    auto* out = reinterpret_cast<Compute*>(tile.out + row / tile.group * tile.out_token_stride +
                                           row % tile.group * tile.out_head_stride);
    for (int64_t i = 0; i < tile.head_dim; i += V::kWidth)
      StorePartial<V>(out + i, tile.head_dim - i,
                      V::Div(V::Load(tile.result.sums + row * tile.dim_padded + i), denominator));
  }
}

// Where the block of keys that begins at `first` ends: as the tile says, or after whole pages, or
// at a fixed place in a page that is larger than a block.
template <typename V>
int64_t BlockEnd(const AttentionTile& tile, int64_t first) {
  const int64_t page_size = tile.keys.page_size;
  const int64_t end = first + BlockKeys(tile.block_keys, page_size);
  if (tile.block_keys > 0 || page_size <= kAttentionKeys) return end;
  const int64_t page_end = (first / page_size + 1) * page_size;
  return end < page_end ? end : page_end;
}

template <typename V>
void BeginAttention(const AttentionTile& tile) {
  const int64_t rows = tile.tokens * tile.group;
  const AttentionSums& result = tile.result;
  for (int64_t i = 0; i < rows * tile.dim_padded; ++i) result.sums[i] = 0;
  for (int64_t i = 0; i < rows * 16; ++i) result.denominators[i] = 0;
  for (int64_t i = 0; i < rows; ++i) result.maxima[i] = kMaskedScore;
}

// A segment that a row sees nothing of changes none of its bits.
template <typename V>
void MergeSegment(const AttentionTile& tile, const AttentionSums& segment, bool begins) {
  if (begins) BeginAttention<V>(tile);
  const AttentionSums& result = tile.result;
  const auto add = [](float* sum, const float* more, int64_t n, typename V::Vec factor,
                      typename V::Vec weight) {
    for (int64_t i = 0; i < n; i += V::kWidth)
      V::Store(sum + i,
               V::Add(V::Mul(V::Load(sum + i), factor), V::Mul(V::Load(more + i), weight)));
  };
  for (int64_t row = 0; row < tile.tokens * tile.group; ++row) {
    const float before = result.maxima[row];
    const float more = segment.maxima[row];
    const float largest = before > more ? before : more;
    result.maxima[row] = largest;
    const auto factor = Exp2OfNegative<V>(V::Set(before - largest));
    const auto weight = Exp2OfNegative<V>(V::Set(more - largest));
    add(result.denominators + row * 16, segment.denominators + row * 16, 16, factor, weight);
    add(result.sums + row * tile.dim_padded, segment.sums + row * tile.dim_padded, tile.dim_padded,
        factor, weight);
  }
}

// Attention of a tile to its segments; attend(tile, first, end) adds the keys from `first` to `end`
// to the tile's result.
template <typename V, typename Compute, typename Attend>
[[gnu::always_inline]] inline void AttendSegments(const AttentionTile& tile, const Attend& attend) {
  const bool all = tile.segment == AttentionTile::kAllSegments;
  const int64_t keys = tile.positions[tile.tokens - 1] + int64_t{1};
  const int64_t size = SegmentKeys(tile.block_keys, tile.keys.page_size);
  const bool merges = all && keys > size;
  AttentionTile one = tile;
  if (merges) one.result = tile.segment_sums;
  int64_t first = all ? 0 : tile.segment * size;
  const int64_t last = all || keys - first < size ? keys : first + size;
  do {
    BeginAttention<V>(one);
    attend(one, first, last - first < size ? last : first + size);
    if (merges) MergeSegment<V>(tile, one.result, first == 0);
    first += size;
  } while (first < last);
  if (all) WriteAttention<V, Compute>(tile);
}

// Attention of a tile to the blocks of keys that `blocks` packs, one after another.
template <typename V, typename Compute, typename Blocks>
void AttendBlocks(const AttentionTile& whole, const Blocks& blocks) {
  AttendSegments<V, Compute>(whole, [&](const AttentionTile& tile, int64_t first, int64_t end) {
    const int64_t keys = tile.positions[tile.tokens - 1] + int64_t{1};
    AttentionStep<V, Compute> step;
    step.tile = &tile;
    while (first < end) {
      const int64_t block_end = BlockEnd<V>(tile, first);
      const int64_t count = (block_end < end ? block_end : end) - first;
      const int64_t next_keys =
          keys - block_end < kAttentionKeys ? keys - block_end : kAttentionKeys;
      blocks.Pack(first, count);
      step.Begin(first);
      auto prefetch = blocks.Prefetch(block_end, next_keys);
      while (step.NextRows(count)) {
        prefetch.Continue(step.rows);
        step.Update();
      }
      first = block_end;
    }
  });
}

template <typename V, typename Compute, typename Cache>
void PackRopeKeys(const AttentionTile& tile, int64_t first, int64_t count) {
  if (tile.rope_keys.dim > 0)
    PackKeys<V, Compute, Cache>({tile.rope_keys, first, count},
                                tile.packed_keys + Steps<Compute>(tile.keys.dim) * kAttentionKeys);
}

// Blocks of the cache as it is.
template <typename V, typename Compute, typename Cache>
struct CachedBlocks {
  const AttentionTile& tile;

  void Pack(int64_t first, int64_t count) const {
    PackKeys<V, Compute, Cache>({tile.keys, first, count}, tile.packed_keys);
    PackRopeKeys<V, Compute, Cache>(tile, first, count);
    PackValues<V, Compute, Cache>({tile.values, first, count}, tile.dim_padded, tile.packed_values);
  }
  CachePrefetch<Cache> Prefetch(int64_t first, int64_t count) const {
    // Latents are keys and values at once.
    return {{tile.keys, first, count},
            {tile.rope_keys.dim > 0 ? tile.rope_keys : tile.values, first, count}};
  }
};

}  // namespace longspan::backend::cpu
