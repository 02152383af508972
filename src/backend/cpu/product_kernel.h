// Products with a panel of packed weights (KernelTable::product).
#pragma once

#include <cstdint>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/product_tile.h"
#include "backend/cpu/simd_math.h"

namespace longspan::backend::cpu {

// kFewRows go through a panel in passes over pieces that stay in the first-level cache and fetch
// the next piece meanwhile, or, where a tile is as wide as the panel, what lies so many bytes on:
// more, and the machine's own prefetcher is disturbed.
constexpr int64_t kStepsOfFewRows = 32;
constexpr int64_t kBytesAhead = 1024;

// One tile of one pass over a ProductBlock.
template <typename V, bool kBf16>
struct ProductTile {
  static constexpr bool kWidens = kWidensRows<V, kBf16>;

  const ProductBlock* block;
  int64_t first_row;
  const char* rows[V::kTileRows];  // from the pass's first step on, as MultiplyAdd reads them
  int64_t first_column;            // in the panel
  int64_t first_step;
  int64_t steps;
  bool first_pass;
  bool last_pass;

  template <int kRows, int kVectors>
  [[gnu::noinline]] void Run() const;
  // All columns of the panel, padding included.
  template <int kRows, int kVectors>
  [[gnu::noinline]] void RunFewRows() const;

  // Goes to the rows from `row` on, at most so many as a tile has; `wide` is room for them.
  [[gnu::always_inline]] void SetRows(int64_t row, float* wide) {
    const ProductBlock& b = *block;
    first_row = row;
    const int64_t count = b.rows - row < V::kTileRows ? b.rows - row : V::kTileRows;
    for (int64_t r = 0; r < count; ++r) {
      const int64_t source = b.source_rows != nullptr ? b.source_rows[row + r] : row + r;
      rows[r] = b.x + source * b.x_stride + first_step * 4;
    }
    if constexpr (kWidens) {
      const int64_t first_element = 2 * first_step;
      const int64_t left = b.columns - first_element;
      WidenRows<V>(rows, count, left < 2 * steps ? left : 2 * steps, wide, 2 * kStepsPerPass);
    }
  }

 private:
  float* PartialSums() const {
    return block->partial_sums + first_row * kPanelColumns + first_column;
  }
  // Takes up the sums where the pass before has left them, and leaves them for the next, or writes
  // the result.
  template <int kRows, int kVectors>
  [[gnu::always_inline]] void Begin(Accumulators<V, kRows, kVectors>& sums) const;
  template <int kRows, int kVectors>
  [[gnu::always_inline]] void End(Accumulators<V, kRows, kVectors>& sums) const;
  // The result's cache lines, while the sums are made.
  template <int kRows, int kVectors>
  [[gnu::always_inline]] void PrefetchOut() const {
    const int64_t element = block->out_type == kFloat ? 4 : 2;
    const int64_t bytes = V::kWidth * kVectors * element;
    const char* out = block->out + (first_row * block->out_stride + first_column) * element;
    for (int r = 0; r < kRows; ++r)
      for (int64_t byte = 0; byte < bytes; byte += 64)
        __builtin_prefetch(out + r * block->out_stride * element + byte, 1);
  }
  template <int kRows, int kVectors>
  [[gnu::always_inline]] void AddOddColumn(const char* const* a,
                                           Accumulators<V, kRows, kVectors>& sums) const;
  template <int kRows, int kVectors>
  [[gnu::always_inline]] void Finish(const Accumulators<V, kRows, kVectors>& sums) const;
};

template <typename V, bool kBf16>
template <int kRows, int kVectors>
inline void ProductTile<V, kBf16>::Begin(Accumulators<V, kRows, kVectors>& sums) const {
  const float* partial = PartialSums();
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      sums.at[r][v] = first_pass ? V::Set(0) : V::Load(partial + r * kPanelColumns + v * V::kWidth);
  }
  if (last_pass) PrefetchOut<kRows, kVectors>();
}

template <typename V, bool kBf16>
template <int kRows, int kVectors>
inline void ProductTile<V, kBf16>::End(Accumulators<V, kRows, kVectors>& sums) const {
  if (last_pass) {
    if (kBf16 && !kWidens && block->columns % 2 != 0) AddOddColumn(rows, sums);
    return Finish(sums);
  }
  float* partial = PartialSums();
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      V::Store(partial + r * kPanelColumns + v * V::kWidth, sums.at[r][v]);
  }
}

template <typename V, bool kBf16>
template <int kRows, int kVectors>
void ProductTile<V, kBf16>::Run() const {
  Accumulators<V, kRows, kVectors> sums;
  Begin(sums);
  MultiplyAdd<V, kBf16>(rows, block->panel + first_step * kPanelColumns + first_column,
                        kPanelColumns, steps, sums);
  End(sums);
}

template <typename V, bool kBf16>
template <int kRows, int kVectors>
void ProductTile<V, kBf16>::RunFewRows() const {
  constexpr int64_t kTileColumns = int64_t{V::kWidth} * kVectors;
  constexpr bool kWholePanel = kTileColumns == kPanelColumns;
  const uint32_t* panel = block->panel + first_step * kPanelColumns;
  const char* ahead = reinterpret_cast<const char*>(panel) +
                      (kWholePanel ? kBytesAhead : steps * kPanelColumns * 4);
  ProductTile tile = *this;
  for (tile.first_column = 0; tile.first_column < kPanelColumns;
       tile.first_column += kTileColumns) {
    Accumulators<V, kRows, kVectors> sums;
    tile.Begin(sums);
    const FetchAhead<kTileColumns * 4> fetch{ahead};
    MultiplyAdd<V, kBf16>(rows, panel + tile.first_column, kPanelColumns, steps, sums, fetch);
    tile.End(sums);
    ahead += steps * kTileColumns * 4;
  }
}

// The last pair of an odd number of columns has no second element to read.
template <typename V, bool kBf16>
template <int kRows, int kVectors>
inline void ProductTile<V, kBf16>::AddOddColumn(const char* const* a,
                                                Accumulators<V, kRows, kVectors>& sums) const {
  uint32_t pair[kRows] = {};
  const char* pairs[kRows];
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    __builtin_memcpy(&pair[r], a[r] + steps * 4, 2);
    pairs[r] = reinterpret_cast<const char*>(&pair[r]);
  }
  MultiplyAdd<V, kBf16>(pairs, block->panel + (first_step + steps) * kPanelColumns + first_column,
                        kPanelColumns, 1, sums);
}

template <typename V, bool kBf16>
template <int kRows, int kVectors>
inline void ProductTile<V, kBf16>::Finish(const Accumulators<V, kRows, kVectors>& sums) const {
  const ProductBlock& b = *block;
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int64_t out_row = (first_row + r) * b.out_stride;
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = first_column + v * V::kWidth;
      const int64_t valid = b.panel_columns - column;
      if (valid <= 0) break;
      auto sum = sums.at[r][v];
      if (b.bias != nullptr) sum = V::Add(sum, LoadPartial<V>(b.bias + column, valid));
      if (b.out_type == kFloat) {
        StorePartial<V>(reinterpret_cast<float*>(b.out) + out_row + column, valid, sum);
      } else {
        StorePartial<V>(reinterpret_cast<Bfloat*>(b.out) + out_row + column, valid, sum);
      }
    }
  }
}

// Calls rows(tile, wide) for every pass of `most_steps` steps at most; `wide` is what SetRows
// takes.
template <typename V, bool kBf16, typename Rows>
[[gnu::always_inline]] inline void ForPasses(const ProductBlock& block, int64_t most_steps,
                                             const Rows& rows) {
  using Tile = ProductTile<V, kBf16>;
  // Whole ones; widened rows end with a zero where they need one.
  const int64_t steps = kBf16 ? (block.columns + (Tile::kWidens ? 1 : 0)) / 2 : block.columns;
  alignas(64) float wide[Tile::kWidens ? V::kTileRows * 2 * kStepsPerPass : 1];
  for (int64_t first_step = 0; first_step == 0 || first_step < steps; first_step += most_steps) {
    const int64_t left = steps - first_step;
    Tile tile;
    tile.block = &block;
    tile.first_step = first_step;
    tile.steps = left < most_steps ? left : most_steps;
    tile.first_pass = first_step == 0;
    tile.last_pass = left <= most_steps;
    rows(tile, wide);
  }
}

template <typename V, bool kBf16>
[[gnu::noinline]] void ProductOfFewRows(const ProductBlock& block) {
  // One row's tile reads a piece once, however long it is.
  const int64_t most_steps = block.rows == 1 ? kStepsPerPass : kStepsOfFewRows;
  ForPasses<V, kBf16>(block, most_steps, [&](ProductTile<V, kBf16>& tile, float* wide) {
    for (int64_t row = 0; row < block.rows; row += V::kTileRows) {
      tile.SetRows(row, wide);
      WithFewRows<V, V::kTileRows>(block.rows - row, tile);
    }
  });
}

template <typename V, bool kBf16>
void Product(const ProductBlock& block) {
  constexpr int64_t kTileColumns = int64_t{V::kWidth} * V::kTileVectors;
  if (block.rows <= kFewRows) return ProductOfFewRows<V, kBf16>(block);
  ForPasses<V, kBf16>(block, kStepsPerPass, [&](ProductTile<V, kBf16>& tile, float* wide) {
    for (int64_t row = 0; row < block.rows; row += V::kTileRows) {
      tile.SetRows(row, wide);
      for (int64_t column = 0; column < block.panel_columns; column += kTileColumns) {
        const int64_t columns_left = block.panel_columns - column;
        tile.first_column = column;
        WithTileShape<V::kTileRows, V::kTileVectors>(
            block.rows - row, (columns_left + V::kWidth - 1) / V::kWidth, tile);
      }
    }
  });
}

}  // namespace longspan::backend::cpu
