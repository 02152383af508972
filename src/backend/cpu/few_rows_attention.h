// Attention of few query rows (KernelTable::attention): a decoding step's, which cost less than the
// keys and values take to come from memory. Keys are packed a piece at a time, values are not, and
// the next block is fetched evenly while this one is attended to. Sums are taken in the order of
// attention_kernel.h, so that a row's result is the same in both.
#pragma once

#include <cstdint>

#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/attention_pack.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/product_tile.h"

namespace longspan::backend::cpu {

// Rows of the cache that are read next, to be fetched into the second-level cache.
struct RowsAhead {
  const char* const* rows = nullptr;
  int64_t count = 0;
  int64_t row_bytes = 0;

  // What lies between these shares of all, of `whole`.
  RowsAhead Part(int64_t from, int64_t to, int64_t whole) const {
    const int64_t begin = count * from / whole;
    return {rows + begin, count * to / whole - begin, row_bytes};
  }
};

// Fetches them evenly, a few lines with every one of `steps` calls.
class FetchRowsAhead {
 public:
  FetchRowsAhead(const RowsAhead& ahead, int64_t steps)
      : row_(ahead.rows),
        end_(ahead.rows + ahead.count),
        row_bytes_(ahead.row_bytes),
        lines_((ahead.count * ((ahead.row_bytes + 63) / 64) + steps - 1) / steps) {}

  // Inlined, since GCC takes a function that only fetches for one without effect and drops its
  // calls.
  [[gnu::always_inline]] void operator()() {
    for (int64_t line = 0; line < lines_ && row_ != end_; ++line) {
      __builtin_prefetch(*row_ + byte_, 0, 2);
      byte_ += 64;
      if (byte_ < row_bytes_) continue;
      byte_ = 0;
      ++row_;
    }
  }

 private:
  const char* const* row_;
  const char* const* end_;
  int64_t row_bytes_;
  int64_t lines_;
  int64_t byte_ = 0;
};

// A block's keys and values by their places: keys, zeros behind them up to what is packed, values,
// zeros.
template <typename Cache>
class BlockRows {
 public:
  // Of the block that begins at `first`; none from the `end` of the sequence on.
  void Find(const AttentionTile& tile, int64_t first, int64_t count) {
    count_ = count > 0 ? count : 0;
    const int64_t padded = PaddedKeys(count_);
    CacheRows<Cache>{tile.keys, first, count_}.Find(0, padded, rows_);
    CacheRows<Cache>{tile.values, first, count_}.Find(0, count_ + 1, rows_ + padded);
  }
  int64_t count() const { return count_; }
  const char* const* keys() const { return rows_; }
  const char* const* values() const { return rows_ + PaddedKeys(count_); }
  RowsAhead Ahead(int64_t dim) const {
    return {rows_, PaddedKeys(count_) + count_, dim * static_cast<int64_t>(sizeof(Cache))};
  }

 private:
  int64_t count_ = 0;
  const char* rows_[2 * kAttentionKeys + 1];
};

// Elements 0, 2, 4 ... of two vectors and elements 1, 3, 5 ..., and back.
template <typename V>
[[gnu::always_inline]] inline void SplitPairs(typename V::Vec& a, typename V::Vec& b) {
  const auto first = a;
  if constexpr (V::kWidth == 4) {
    a = __builtin_shufflevector(first, b, 0, 2, 4, 6);
    b = __builtin_shufflevector(first, b, 1, 3, 5, 7);
  } else if constexpr (V::kWidth == 8) {
    a = __builtin_shufflevector(first, b, 0, 2, 4, 6, 8, 10, 12, 14);
    b = __builtin_shufflevector(first, b, 1, 3, 5, 7, 9, 11, 13, 15);
  } else {
    a = __builtin_shufflevector(first, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                30);
    b = __builtin_shufflevector(first, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                                31);
  }
}
template <typename V>
[[gnu::always_inline]] inline void JoinPairs(typename V::Vec& a, typename V::Vec& b) {
  const auto even = a;
  if constexpr (V::kWidth == 4) {
    a = __builtin_shufflevector(even, b, 0, 4, 1, 5);
    b = __builtin_shufflevector(even, b, 2, 6, 3, 7);
  } else if constexpr (V::kWidth == 8) {
    a = __builtin_shufflevector(even, b, 0, 8, 1, 9, 2, 10, 3, 11);
    b = __builtin_shufflevector(even, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else {
    a = __builtin_shufflevector(even, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    b = __builtin_shufflevector(even, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                31);
  }
}

// All rows of a tile against one block.
template <typename V, typename Compute>
struct FewRowsStep {
  static constexpr bool kBf16 = sizeof(Compute) == 2;
  static constexpr bool kPairs = kBf16 && V::kBf16Dot;
  // Keys that are packed at once: as many as the widest tile takes, and the first-level cache.
  static constexpr int64_t kPieceKeys = 64;

  AttentionStep<V, Compute>* step;
  const BlockRows<Compute>* block;
  RowsAhead ahead;

  void Update() const {
    const AttentionTile& tile = *step->tile;
    const int64_t keys = PaddedKeys(block->count());
    const int64_t pieces = (keys + kPieceKeys - 1) / kPieceKeys;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t first = piece * kPieceKeys;
      const int64_t end = first + kPieceKeys < keys ? first + kPieceKeys : keys;
      const RowsAhead part = ahead.Part(piece, piece + 1, 2 * pieces);
      PackPiece(first, end, part.Part(0, 1, 2));
      for (int64_t row = 0; row < step->rows; row += V::kTileRows)
        WithFewRows<V, V::kTileRows>(step->rows - row,
                                     Scores{this, row, first, end, part.Part(1, 2, 2)});
    }
    step->MaskScores();
    step->UpdateSoftmax();
    for (int64_t row = 0; row < step->rows; row += V::kTileRows)
      WithFewRows<V, V::kTileRows>(step->rows - row,
                                   Outputs{this, row, tile.values.dim, ahead.Part(1, 2, 2)});
  }

 private:
  void PackPiece(int64_t first, int64_t end, const RowsAhead& part) const {
    const AttentionTile& tile = *step->tile;
    FetchRowsAhead fetch(part, (end - first) / V::kWidth);
    for (int64_t token = first; token < end; token += V::kWidth) {
      fetch();
      PackRows<V>(block->keys() + token, Steps<Compute>(tile.keys.dim), tile.packed_keys + token);
    }
  }

  struct Scores {
    const FewRowsStep* few;
    int64_t row;
    int64_t first;
    int64_t end;
    RowsAhead ahead;

    template <int kRows, int kVectors>
    void RunFewRows() const {
      constexpr int64_t kColumns = int64_t{kVectors} * V::kWidth;
      const int64_t tiles = (end - first + kColumns - 1) / kColumns;
      for (int64_t i = 0; i < tiles; ++i)
        typename AttentionStep<V, Compute>::Scores{few->step, row, first + i * kColumns}
            .template Run<kRows, kVectors>(
                FetchRowsAhead(row == 0 ? ahead.Part(i, i + 1, tiles) : RowsAhead{},
                               Steps<Compute>(few->step->tile->keys.dim)));
    }
  };

  struct Outputs {
    const FewRowsStep* few;
    int64_t row;
    int64_t dim;
    RowsAhead ahead;

    template <int kRows, int kVectors>
    void RunFewRows() const {
      RunColumns<kRows, kVectors>(0);
    }

   private:
    // As many tiles as fit, then narrower ones.
    template <int kRows, int kVectors>
    void RunColumns(int64_t column) const {
      constexpr int64_t kColumns = int64_t{kVectors} * V::kWidth;
      for (; column + kColumns <= dim; column += kColumns) {
        const RowsAhead part = ahead.Part(column, column + kColumns, dim);
        RunTile<kRows, kVectors>(column, row == 0 ? part : RowsAhead{});
      }
      if constexpr (kVectors > 1) RunColumns<kRows, kVectors / 2>(column);
    }
    template <int kRows, int kVectors>
    [[gnu::noinline]] void RunTile(int64_t column, const RowsAhead& part) const;
    // The tokens that are one step of a product with packed values.
    template <int kRows, int kVectors>
    [[gnu::always_inline]] void AddTokens(int64_t token, int64_t column,
                                          Accumulators<V, kRows, kVectors>& sums) const;
  };

  // Without a product of bf16 pairs, pairs of elements are split in registers: sums of the even
  // elements, then of the odd ones.
  template <int kVectors>
  static constexpr bool kSplits = kBf16 && !kPairs && kVectors % 2 == 0;
};

template <typename V, typename Compute>
template <int kRows, int kVectors>
inline void FewRowsStep<V, Compute>::Outputs::AddTokens(
    int64_t token, int64_t column, Accumulators<V, kRows, kVectors>& sums) const {
  using Vec = typename V::Vec;
  constexpr int kSingles = kBf16 && !kPairs ? 2 : 1;
  const auto* probabilities = few->step->probabilities + row * kAttentionKeys + token;
  LONGSPAN_UNROLL
  for (int i = 0; i < kSingles; ++i) {
    Vec x[kRows];
    LONGSPAN_UNROLL
    for (int r = 0; r < kRows; ++r)
      x[r] =
          V::BroadcastWord(reinterpret_cast<const char*>(probabilities + r * kAttentionKeys + i));
    const auto* value = reinterpret_cast<const Compute*>(few->block->values()[token + i]) + column;
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; v += kSplits<kVectors> ? 2 : 1) {
      if constexpr (kSplits<kVectors>) {
        const Vec words = V::LoadWords(reinterpret_cast<const uint32_t*>(value + v * V::kWidth));
        LONGSPAN_UNROLL
        for (int r = 0; r < kRows; ++r) {
          V::AddProduct(sums.at[r][v], x[r], V::LowHalf(words));
          V::AddProduct(sums.at[r][v + 1], x[r], V::HighHalf(words));
        }
      } else if constexpr (kPairs) {
        const auto* second =
            reinterpret_cast<const Compute*>(few->block->values()[token + 1]) + column;
        const Vec pair = V::PairWords(value + v * V::kWidth, second + v * V::kWidth);
        LONGSPAN_UNROLL
        for (int r = 0; r < kRows; ++r) sums.at[r][v] = V::DotBf16(sums.at[r][v], x[r], pair);
      } else {
        const Vec elements = V::Load(value + v * V::kWidth);
        LONGSPAN_UNROLL
        for (int r = 0; r < kRows; ++r) V::AddProduct(sums.at[r][v], x[r], elements);
      }
    }
  }
}

template <typename V, typename Compute>
template <int kRows, int kVectors>
void FewRowsStep<V, Compute>::Outputs::RunTile(int64_t column, const RowsAhead& part) const {
  constexpr int kTokens = kBf16 ? 2 : 1;
  const AttentionTile& tile = *few->step->tile;
  Accumulators<V, kRows, kVectors> sums;
  float* out = tile.result.sums + (few->step->first_row + row) * tile.dim_padded + column;
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const auto factor = V::Set(few->step->rescale[row + r]);
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      sums.at[r][v] = V::Mul(V::Load(out + r * tile.dim_padded + v * V::kWidth), factor);
    if constexpr (kSplits<kVectors>) {
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; v += 2) SplitPairs<V>(sums.at[r][v], sums.at[r][v + 1]);
    }
  }
  const int64_t visible = few->step->visible;
  FetchRowsAhead fetch(part, (visible + kTokens - 1) / kTokens);
  for (int64_t token = 0; token < visible; token += kTokens) {
    fetch();
    AddTokens(token, column, sums);
  }
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kSplits<kVectors>) {
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; v += 2) JoinPairs<V>(sums.at[r][v], sums.at[r][v + 1]);
    }
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v)
      V::Store(out + r * tile.dim_padded + v * V::kWidth, sums.at[r][v]);
  }
}

// `Compute` is what the cache holds.
template <typename V, typename Compute>
void AttendFewRows(const AttentionTile& whole) {
  AttendSegments<V, Compute>(whole, [](const AttentionTile& tile, int64_t first, int64_t end) {
    const int64_t keys = tile.positions[tile.tokens - 1] + int64_t{1};
    AttentionStep<V, Compute> step;
    step.tile = &tile;
    BlockRows<Compute> blocks[2];
    const auto find = [&](int64_t begin, BlockRows<Compute>& block) {
      const int64_t block_end = BlockEnd<V>(tile, begin);
      block.Find(tile, begin, (block_end < keys ? block_end : keys) - begin);
    };
    if (first < end) find(first, blocks[0]);
    for (int current = 0; first < end; first = BlockEnd<V>(tile, first), current = 1 - current) {
      BlockRows<Compute>& next = blocks[1 - current];
      find(BlockEnd<V>(tile, first), next);
      step.Begin(first);
      step.NextRows(blocks[current].count());
      FewRowsStep<V, Compute>{&step, &blocks[current], next.Ahead(tile.keys.dim)}.Update();
    }
  });
}

// All rows go with one call of NextRows, keys have one part, and values are whole vectors.
inline bool IsForFewRows(const AttentionTile& tile, int64_t width) {
  return tile.tokens * tile.group <= kFewRows && tile.rope_keys.dim == 0 &&
         tile.values.dim % width == 0;
}

template <typename V, typename Compute, typename Cache>
void AttendTile(const AttentionTile& tile) {
  if constexpr (sizeof(Compute) == sizeof(Cache)) {
    if (IsForFewRows(tile, V::kWidth)) return AttendFewRows<V, Compute>(tile);
  }
  AttendBlocks<V, Compute>(tile, CachedBlocks<V, Compute, Cache>{tile});
}

}  // namespace longspan::backend::cpu
