// Keys and values of a block of the paged cache, re-packed as operands of product_tile.h.
#pragma once

#include <cstdint>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/simd_math.h"

namespace longspan::backend::cpu {

// Keys are multiplied and weighed in runs of 32.
constexpr int64_t PaddedKeys(int64_t keys) { return (keys + 31) / 32 * 32; }

// Finds the rows of successive tokens in the paged cache.
template <typename Cache>
struct CacheRows {
  const PagedRows& rows;
  int64_t first_token;  // of the block
  int64_t count;        // tokens that are there; rows beyond are zeros

  const char* At(int64_t token) const {
    if (token >= count) return rows.zeros;
    int64_t position = first_token + token;
    if (rows.selected != nullptr) position = rows.selected[position];
    return Of(rows.pages[position / rows.page_size], position % rows.page_size);
  }

  // The `n` rows from `token` on; where they follow one another, pages are looked up once.
  void Find(int64_t token, int64_t n, const char** found) const {
    int64_t i = 0;
    if (rows.selected == nullptr && token < count) {
      const int64_t there = count - token < n ? count - token : n;
      int64_t page = (first_token + token) / rows.page_size;
      int64_t offset = first_token + token - page * rows.page_size;
      while (i < there) {
        const char* row = Of(rows.pages[page++], offset);
        const int64_t left = rows.page_size - offset;
        const int64_t run = there - i < left ? there - i : left;
        for (int64_t j = 0; j < run; ++j) found[i + j] = row + j * row_bytes();
        i += run;
        offset = 0;
      }
    }
    for (; i < n; ++i) found[i] = At(token + i);
  }

 private:
  int64_t row_bytes() const { return rows.dim * static_cast<int64_t>(sizeof(Cache)); }
  const char* Of(int64_t page, int64_t offset) const {
    return rows.cache + page * rows.page_stride + offset * row_bytes();
  }
};

// Fetches the next block into the second-level cache, a few tokens at a time.
template <typename Cache>
struct CachePrefetch {
  CacheRows<Cache> keys;
  CacheRows<Cache> others;
  int64_t token = 0;

  // At most so many tokens more.
  void Continue(int64_t tokens) {
    const int64_t end = token + tokens < keys.count ? token + tokens : keys.count;
    for (; token < end; ++token) {
      Fetch(keys.At(token), keys.rows.dim);
      Fetch(others.At(token), others.rows.dim);
    }
  }

 private:
  // Inlined, since GCC takes a function that only fetches for one without effect and drops its
  // calls.
  [[gnu::always_inline]] static void Fetch(const char* row, int64_t dim) {
    const int64_t bytes = dim * static_cast<int64_t>(sizeof(Cache));
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 0, 2);
  }
};

// Rows [first, first + n) of the block as elements of the compute type, n <= 16.
template <typename V, typename Compute, typename Cache>
[[gnu::always_inline]] inline void FetchRows(const CacheRows<Cache>& rows, int64_t first, int n,
                                             const char** fetched) {
  rows.Find(first, n, fetched);
  if constexpr (sizeof(Compute) != sizeof(Cache)) {
    for (int i = 0; i < n; ++i) {
      char* to = rows.rows.converted +
                 i * ((rows.rows.dim + 15) / 16 * 16) * static_cast<int64_t>(sizeof(float));
      Convert<V, Cache, Compute>(fetched[i], to, rows.rows.dim);
      fetched[i] = to;
    }
  }
}

// Words of so many elements.
template <typename Compute>
constexpr int64_t Steps(int64_t dim) {
  return dim * static_cast<int64_t>(sizeof(Compute)) / 4;
}

// V::kWidth rows of so many words, transposed: word [step][row].
template <typename V>
[[gnu::always_inline]] inline void PackRows(const char* const* rows, int64_t steps, uint32_t* to) {
  int64_t step = 0;
  for (; step + V::kWidth <= steps; step += V::kWidth)
    V::Transpose(rows, step, to + step * kAttentionKeys, kAttentionKeys);
  for (; step < steps; ++step)
    for (int i = 0; i < V::kWidth; ++i)
      __builtin_memcpy(to + step * kAttentionKeys + i, rows[i] + 4 * step, 4);
}

// Keys transposed: word [step][token] for the product with a query.
template <typename V, typename Compute, typename Cache>
void PackKeys(const CacheRows<Cache>& rows, uint32_t* packed) {
  for (int64_t token = 0; token < PaddedKeys(rows.count); token += V::kWidth) {
    const char* row[V::kWidth];
    FetchRows<V, Compute>(rows, token, V::kWidth, row);
    PackRows<V>(row, Steps<Compute>(rows.rows.dim), packed + token);
  }
}

// Values: word [step][dim] for the product with probabilities, a step being one token (f32) or two
// (bf16).
template <typename V, typename Compute, typename Cache>
void PackValues(const CacheRows<Cache>& rows, int64_t dim_padded, uint32_t* to) {
  constexpr int kTokens = 4 / sizeof(Compute);
  for (int64_t token = 0; token < rows.count; token += kTokens, to += dim_padded) {
    const char* row[kTokens];
    FetchRows<V, Compute>(rows, token, kTokens, row);
    for (int64_t i = 0; i < dim_padded; i += V::kWidth) {
      const int64_t left = rows.rows.dim - i;
      const int64_t n = left > 0 ? left : 0;
      if constexpr (kTokens == 1) {
        const auto* value = reinterpret_cast<const float*>(row[0]);
        V::StoreWords(to + i, LoadPartial<V>(value + i, n));
      } else {
        const auto* low = reinterpret_cast<const Bfloat*>(row[0]) + i;
        const auto* high = reinterpret_cast<const Bfloat*>(row[1]) + i;
        Bfloat low_padded[V::kWidth] = {};
        Bfloat high_padded[V::kWidth] = {};
        if (n < V::kWidth) {
          for (int64_t j = 0; j < n; ++j) {
            low_padded[j] = low[j];
            high_padded[j] = high[j];
          }
          low = low_padded;
          high = high_padded;
        }
        V::StoreWords(to + i, V::PairWords(low, high));
      }
    }
  }
}

}  // namespace longspan::backend::cpu
