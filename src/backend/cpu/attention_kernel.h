// Blocked attention over the paged cache with an online softmax (KernelTable::attention), after
// FlashAttention (Dao et al. 2022).
//
// A row's result does not depend on the rows beside it: its blocks of keys begin at fixed positions
// and are merged in order; keys beyond its own position take part with probability exactly 0, which
// changes no sum, no maximum, and scales by exactly 1.
#pragma once

#include <cstdint>

#include "backend/cpu/attention_pack.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/product_tile.h"
#include "backend/cpu/simd_math.h"

namespace longspan::backend::cpu {

// A few query rows (register tile) against one block of keys, in the first-level cache.
template <typename V, typename Compute>
struct AttentionStep {
  static constexpr bool kBf16 = sizeof(Compute) == 2;
  static constexpr float kMasked = -__builtin_inff();

  const AttentionTile* tile;
  int64_t first_row;    // row = token * group + head
  int64_t rows;         // up to V::kTileRows
  int64_t first_token;  // of the block of keys
  int64_t visible;      // keys of the block that the last row sees
  alignas(64) float scores[V::kTileRows * kAttentionKeys];
  alignas(64) Compute probabilities[V::kTileRows * kAttentionKeys];
  float rescale[16];

  void RunAll() {
    MultiplyQueriesKeys();
    MaskScores();
    UpdateSoftmax();
    MultiplyProbabilitiesValues();
  }

 private:
  // Whole vectors of keys.
  int64_t padded_keys() const { return (visible + V::kWidth - 1) / V::kWidth * V::kWidth; }

  struct Scores {
    AttentionStep* step;
    int64_t first_key;
    template <int kRows, int kVectors>
    [[gnu::noinline]] void Run() const;
  };
  struct Outputs {
    AttentionStep* step;
    int64_t first_dim;
    template <int kRows, int kVectors>
    [[gnu::noinline]] void Run() const;
  };

  void MultiplyQueriesKeys() {
    constexpr int64_t kColumns = int64_t{V::kWidth} * V::kTileVectors;
    for (int64_t key = 0; key < padded_keys(); key += kColumns)
      WithTileShape<V::kTileRows, V::kTileVectors>(rows, (padded_keys() - key) / V::kWidth,
                                                   Scores{this, key});
  }

  void MultiplyProbabilitiesValues() {
    constexpr int64_t kColumns = int64_t{V::kWidth} * V::kTileVectors;
    for (int64_t dim = 0; dim < tile->dim_padded; dim += kColumns)
      WithTileShape<V::kTileRows, V::kTileVectors>(rows, (tile->dim_padded - dim) / V::kWidth,
                                                   Outputs{this, dim});
  }

  void MaskScores() {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t position = tile->first_position + (first_row + r) / tile->group;
      int64_t key = position + 1 - first_token;
      if (key < 0) key = 0;
      if (key > visible) key = visible;
      for (; key < padded_keys(); ++key) scores[r * kAttentionKeys + key] = kMasked;
    }
  }

  void UpdateSoftmax() {
    float* maxima = tile->maxima + first_row;
    for (float& r : rescale) r = 0;
    for (int64_t r = 0; r < rows; ++r) {
      auto max = V::Set(maxima[r]);
      for (int64_t key = 0; key < padded_keys(); key += V::kWidth)
        max = V::Max(max, V::Load(scores + r * kAttentionKeys + key));
      const float largest = V::ReduceMax(max);
      rescale[r] = maxima[r] - largest;
      maxima[r] = largest;
    }
    for (int i = 0; i < 16; i += V::kWidth) V::Store(rescale + i, Exp2<V>(V::Load(rescale + i)));
    for (int64_t r = 0; r < rows; ++r) UpdateRow(r, V::Set(maxima[r]), V::Set(rescale[r]));
  }

  [[gnu::always_inline]] void UpdateRow(int64_t r, typename V::Vec max, typename V::Vec factor) {
    float* denominator = tile->denominators + (first_row + r) * 16;
    auto sum = V::Mul(V::Load(denominator), factor);
    for (int64_t key = 0; key < padded_keys(); key += V::kWidth) {
      const auto p = Exp2<V>(V::Sub(V::Load(scores + r * kAttentionKeys + key), max));
      Compute* rounded = probabilities + r * kAttentionKeys + key;
      V::Store(rounded, p);
      // The sum of what the values are weighted with.
      sum = V::Add(sum, V::Load(rounded));
    }
    V::Store(denominator, sum);
  }
};

template <typename V, typename Compute>
template <int kRows, int kVectors>
void AttentionStep<V, Compute>::Scores::Run() const {
  const AttentionTile& tile = *step->tile;
  const char* a[kRows];
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = step->first_row + r;
    a[r] = tile.queries + row / tile.group * tile.query_token_stride +
           row % tile.group * tile.query_head_stride;
  }
  Accumulators<V, kRows, kVectors> sums;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::Set(0);
  const int64_t steps = tile.head_dim * static_cast<int64_t>(sizeof(Compute)) / 4;
  MultiplyAdd<V, kBf16>(a, tile.keys + first_key, kAttentionKeys, steps, sums);
  const auto scale = V::Set(tile.scale_log2);
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      V::Store(step->scores + r * kAttentionKeys + first_key + v * V::kWidth,
               V::Mul(sums.at[r][v], scale));
}

template <typename V, typename Compute>
template <int kRows, int kVectors>
void AttentionStep<V, Compute>::Outputs::Run() const {
  const AttentionTile& tile = *step->tile;
  const char* a[kRows];
  Accumulators<V, kRows, kVectors> sums;
  float* out = tile.sums + step->first_row * tile.dim_padded + first_dim;
  for (int r = 0; r < kRows; ++r) {
    a[r] = reinterpret_cast<const char*>(step->probabilities + r * kAttentionKeys);
    const auto factor = V::Set(step->rescale[r]);
    for (int v = 0; v < kVectors; ++v)
      sums.at[r][v] = V::Mul(V::Load(out + r * tile.dim_padded + v * V::kWidth), factor);
  }
  const int64_t steps = (step->visible * static_cast<int64_t>(sizeof(Compute)) + 3) / 4;
  MultiplyAdd<V, kBf16>(a, tile.values + first_dim, tile.dim_padded, steps, sums);
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      V::Store(out + r * tile.dim_padded + v * V::kWidth, sums.at[r][v]);
}

template <typename V, typename Compute>
void WriteAttention(const AttentionTile& tile) {
  for (int64_t row = 0; row < tile.tokens * tile.group; ++row) {
    const auto denominator = V::Set(V::ReduceAdd(V::Load(tile.denominators + row * 16)));
    auto* out = reinterpret_cast<Compute*>(tile.out + row / tile.group * tile.out_token_stride +
                                           row % tile.group * tile.out_head_stride);
    for (int64_t i = 0; i < tile.head_dim; i += V::kWidth)
      StorePartial<V>(out + i, tile.head_dim - i,
                      V::Div(V::Load(tile.sums + row * tile.dim_padded + i), denominator));
  }
}

// Where the block of keys that begins at `first` ends: after whole pages, or at a fixed place in a
// page that is larger than a block.
template <typename V>
int64_t BlockEnd(int64_t first, int64_t page_size) {
  if (page_size <= kAttentionKeys) return first + kAttentionKeys / page_size * page_size;
  const int64_t page_end = (first / page_size + 1) * page_size;
  return first + kAttentionKeys < page_end ? first + kAttentionKeys : page_end;
}

template <typename V, typename Compute, typename Cache>
void AttendTile(const AttentionTile& tile) {
  const int64_t rows = tile.tokens * tile.group;
  for (int64_t i = 0; i < rows * tile.dim_padded; ++i) tile.sums[i] = 0;
  for (int64_t i = 0; i < rows * 16; ++i) tile.denominators[i] = 0;
  for (int64_t i = 0; i < rows; ++i) tile.maxima[i] = AttentionStep<V, Compute>::kMasked;

  const int64_t keys = tile.first_position + tile.tokens;
  AttentionStep<V, Compute> step;
  step.tile = &tile;
  for (int64_t first = 0; first < keys;) {
    const int64_t end = BlockEnd<V>(first, tile.page_size);
    const int64_t count = (end < keys ? end : keys) - first;
    PackKeys<V, Compute, Cache>(tile, first, count);
    PackValues<V, Compute, Cache>(tile, first, count);
    step.first_token = first;
    for (int64_t row = 0; row < rows; row += V::kTileRows) {
      step.first_row = row;
      step.rows = rows - row < V::kTileRows ? rows - row : V::kTileRows;
      const int64_t last_position = tile.first_position + (row + step.rows - 1) / tile.group;
      if (last_position < first) continue;
      step.visible = last_position - first + 1 < count ? last_position - first + 1 : count;
      step.RunAll();
    }
    first = end;
  }
  WriteAttention<V, Compute>(tile);
}

}  // namespace longspan::backend::cpu
