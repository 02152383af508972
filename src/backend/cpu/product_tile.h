// The register tile of all products: rows x columns of a result, summed step by step.
//
// Every element has one accumulator and adds its products in the order of the steps, whatever the
// shape of the tile: this is what makes a row's result independent of the rows beside it.
#pragma once

#include <cstdint>

// Loops over a tile are unrolled before the compiler decides what lives in registers: otherwise the
// accumulators go through memory before and after every product.
#define LONGSPAN_UNROLL _Pragma("GCC unroll 8")

namespace longspan::backend::cpu {

// Accumulators of a tile; kept in registers once everything is inlined.
template <typename V, int kRows, int kVectors>
struct Accumulators {
  typename V::Vec at[kRows][kVectors];
};

// sums += A W for `steps` steps of 32-bit words (see kPanelColumns): a[row] points to the row's
// words, w to the tile's first column of the first step, steps being w_stride words apart.
template <typename V, bool kBf16, int kRows, int kVectors>
[[gnu::always_inline]] inline void MultiplyAdd(const char* const* a, const uint32_t* w,
                                               int64_t w_stride, int64_t steps,
                                               Accumulators<V, kRows, kVectors>& sums) {
  using Vec = typename V::Vec;
  const char* row[kRows];
  LONGSPAN_UNROLL
  for (int r = 0; r < kRows; ++r) row[r] = a[r];
  for (int64_t step = 0; step < steps; ++step, w += w_stride) {
    Vec column[kVectors];
    LONGSPAN_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = V::LoadWords(w + v * V::kWidth);
    if constexpr (!kBf16) {
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec x = V::BroadcastWord(row[r] + 4 * step);
        LONGSPAN_UNROLL
        for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::MulAdd(x, column[v], sums.at[r][v]);
      }
    } else if constexpr (V::kBf16Dot) {
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec x = V::BroadcastWord(row[r] + 4 * step);
        LONGSPAN_UNROLL
        for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::DotBf16(sums.at[r][v], x, column[v]);
      }
    } else {
      Vec half[kVectors];
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) half[v] = V::LowHalf(column[v]);
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec x = V::LowHalf(V::BroadcastWord(row[r] + 4 * step));
        LONGSPAN_UNROLL
        for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::MulAdd(x, half[v], sums.at[r][v]);
      }
      LONGSPAN_UNROLL
      for (int v = 0; v < kVectors; ++v) half[v] = V::HighHalf(column[v]);
      LONGSPAN_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Vec x = V::HighHalf(V::BroadcastWord(row[r] + 4 * step));
        LONGSPAN_UNROLL
        for (int v = 0; v < kVectors; ++v) sums.at[r][v] = V::MulAdd(x, half[v], sums.at[r][v]);
      }
    }
  }
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
