// The register tile of all products: rows x columns of a result, summed step by step.
//
// Every element has one accumulator and adds its products in the order of the steps, whatever the
// shape of the tile: this is what makes a row's result independent of the rows beside it.
#pragma once

#include <cstdint>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/simd_math.h"

// Loops over a tile are unrolled before the compiler decides what lives in registers: otherwise the
// accumulators go through memory before and after every product.
#define LONGSPAN_UNROLL _Pragma("GCC unroll 8")

namespace longspan::backend::cpu {

// Accumulators of a tile; kept in registers once everything is inlined.
template <typename V, int kRows, int kVectors>
struct Accumulators {
  typename V::Vec at[kRows][kVectors];
};

// How the rows of a product are read. Without a dot product of bf16 pairs they are widened to f32
// before they meet the columns, once for all of them: a column's pairs are split in registers for
// all rows together.
template <typename V, bool kBf16>
constexpr bool kWidensRows = kBf16 && !V::kBf16Dot;
template <bool kBf16, bool kWidened>
struct RowElementOf {
  using Type = float;
};
template <>
struct RowElementOf<true, false> {
  using Type = Bfloat;
};
template <typename V, bool kBf16>
using RowElement = typename RowElementOf<kBf16, kWidensRows<V, kBf16>>::Type;
// Bytes of a row that meet one word of a column.
template <typename V, bool kBf16>
constexpr int64_t kRowStepBytes = kWidensRows<V, kBf16> ? 8 : 4;

// Rows of `elements` bf16 as MultiplyAdd reads them: moves rows[0 .. count) into `wide`, `stride`
// floats apart, with a zero behind an odd number of elements.
template <typename V>
[[gnu::always_inline]] inline void WidenRows(const char** rows, int64_t count, int64_t elements,
                                             float* wide, int64_t stride) {
  for (int64_t r = 0; r < count; ++r, wide += stride) {
    Convert<V, Bfloat, float>(rows[r], wide, elements);
    if (elements % 2 != 0) wide[elements] = 0;
    rows[r] = reinterpret_cast<const char*>(wide);
  }
}

// What a product fetches in every step: nothing, or a piece of what is read next.
struct NoFetch {
  void operator()() const {}
};
template <int64_t kStepBytes>
struct FetchAhead {
  const char* ahead;
  [[gnu::always_inline]] void operator()() {
    LONGSPAN_UNROLL
    for (int64_t byte = 0; byte < kStepBytes; byte += 64) __builtin_prefetch(ahead + byte);
    ahead += kStepBytes;
  }
};

// MultiplyAdd for tiles that are wider than kTileVectors: vectors of a step are taken one at a
// time, since the sums leave no registers for more.
template <typename V, bool kBf16, int kRows, int kVectors, typename Fetch>
[[gnu::always_inline]] inline void MultiplyAddWide(const char* const* a, const uint32_t* w,
                                                   int64_t w_stride, int64_t steps,
                                                   Accumulators<V, kRows, kVectors>& sums,
                                                   Fetch fetch) {
  using Vec = typename V::Vec;
  constexpr bool kWidens = kWidensRows<V, kBf16>;
  const char* row[kRows];
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) row[r] = a[r];
  for (int64_t step = 0; step < steps; ++step, w += w_stride) {
    fetch();
    // Of many rows one half of the pairs after the other: there are registers for half as many
    // elements.
    constexpr int kHalves = kWidens && kRows > 2 ? 2 : 1;
    LONGSPAN_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      Vec x[kRows];
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r)
        x[r] = V::BroadcastWord(row[r] + kRowStepBytes<V, kBf16> * step + 4 * half);
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        Vec column = V::LoadWords(w + v * V::kWidth);
        if constexpr (kHalves == 2) column = half == 0 ? V::LowHalf(column) : V::HighHalf(column);
        LONGSPAN_UNROLL
        for (int r = 0; r < kRows; ++r) {
          Vec& sum = sums.at[r][v];
          if constexpr (kWidens && kHalves == 1) {
            V::AddProduct(sum, x[r], V::LowHalf(column));
            V::AddProduct(sum, V::BroadcastWord(row[r] + 8 * step + 4), V::HighHalf(column));
          } else if constexpr (kBf16 && !kWidens) {
            sum = V::DotBf16(sum, x[r], column);
          } else {
            V::AddProduct(sum, x[r], column);
          }
        }
      }
    }
  }
}

// sums += A W for `steps` steps of 32-bit words (see kPanelColumns): a[row] points to the row's
// elements (RowElement), w to the tile's first column of the first step, steps being w_stride words
// apart.
template <typename V, bool kBf16, int kRows, int kVectors, typename Fetch = NoFetch>
[[gnu::always_inline]] inline void MultiplyAdd(const char* const* a, const uint32_t* w,
                                               int64_t w_stride, int64_t steps,
                                               Accumulators<V, kRows, kVectors>& sums,
                                               Fetch fetch = {}) {
  if constexpr (kVectors > V::kTileVectors)
    return MultiplyAddWide<V, kBf16>(a, w, w_stride, steps, sums, fetch);
  using Vec = typename V::Vec;
  const char* row[kRows];
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) row[r] = a[r];
  for (int64_t step = 0; step < steps; ++step, w += w_stride) {
    fetch();
    Vec column[kVectors];
    if constexpr (!kWidensRows<V, kBf16>) {
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) column[v] = V::LoadWords(w + v * V::kWidth);
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec x = V::BroadcastWord(row[r] + 4 * step);
        LONGSPAN_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          if constexpr (kBf16) {
            sums.at[r][v] = V::DotBf16(sums.at[r][v], x, column[v]);
          } else {
            V::AddProduct(sums.at[r][v], x, column[v]);
          }
        }
      }
    } else {
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) column[v] = V::LowHalf(V::LoadWords(w + v * V::kWidth));
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec x = V::BroadcastWord(row[r] + 8 * step);
        LONGSPAN_UNROLL
        for (int v = 0; v < kVectors; ++v) V::AddProduct(sums.at[r][v], x, column[v]);
      }
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) column[v] = V::HighHalf(V::LoadWords(w + v * V::kWidth));
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec x = V::BroadcastWord(row[r] + 8 * step + 4);
        LONGSPAN_UNROLL
        for (int v = 0; v < kVectors; ++v) V::AddProduct(sums.at[r][v], x, column[v]);
      }
    }
  }
}

// The widest tile, in vectors that divide a panel, whose sums for so many rows take no more
// registers than those of a full tile: the fewer rows, the more columns it needs to hide the
// latency of its additions and to read a panel in long runs.
template <typename V, int kRows>
constexpr int VectorsOfRows() {
  int vectors = V::kTileVectors;
  while (2 * vectors * kRows <= V::kTileRows * V::kTileVectors &&
         2 * vectors * V::kWidth <= kPanelColumns)
    vectors *= 2;
  return vectors;
}

// Calls function.template RunFewRows<rows, vectors>() for rows in [1, kRows].
template <typename V, int kRows, typename Function>
[[gnu::always_inline]] inline void WithFewRows(int64_t rows, const Function& function) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return WithFewRows<V, kRows - 1>(rows, function);
  }
  function.template RunFewRows<kRows, VectorsOfRows<V, kRows>()>();
}

// Calls function.template Run<rows, vectors>() for rows in [1, kRows], vectors in [1, kVectors].
template <int kRows, int kVectors, typename Function>
[[gnu::always_inline]] inline void WithTileShape(int64_t rows, int64_t vectors,
                                                 const Function& function) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return WithTileShape<kRows, kVectors - 1>(rows, vectors, function);
  }
  if constexpr (kRows > 1) {
    if (rows < kRows) return WithTileShape<kRows - 1, kVectors>(rows, vectors, function);
  }
  function.template Run<kRows, kVectors>();
}

}  // namespace longspan::backend::cpu
