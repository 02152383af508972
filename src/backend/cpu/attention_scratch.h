// What attention of one kind or another shares: scratch of its tiles, tasks of its steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kernel_table.h"
#include "tensor/workspace.h"

namespace longspan::backend::cpu {

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where the tokens of a slice's sequence lie, for one head of the cache.
inline PagedRows PagedRowsOf(const tensor::ConstView& cache, const ops::StepTables& tables,
                             int64_t slice, int64_t head) {
  const int64_t element = tensor::SizeOf(cache.dtype());
  PagedRows rows;
  rows.cache = static_cast<const char*>(cache.raw()) + head * cache.stride(1) * element;
  rows.dim = cache.size(3);
  rows.page_stride = cache.stride(0) * element;
  rows.page_size = cache.size(2);
  rows.pages = tables.page_table.row<int32_t>(slice);
  return rows;
}

// Sums of some rows, in scratch; `rows` is a multiple of 16.
constexpr int64_t SumsWords(int64_t rows, int64_t dim_padded) {
  return rows * (dim_padded + 16 + 1);
}
inline AttentionSums SumsAt(float* words, int64_t rows, int64_t dim_padded) {
  return {.sums = words,
          .maxima = words + rows * (dim_padded + 16),
          .denominators = words + rows * dim_padded};
}

// What a thread needs, in f32 and 32-bit words; every part is a multiple of 64 bytes.
struct AttentionScratch {
  int64_t rows;        // query tokens x heads of a tile, at most
  int64_t key_padded;  // of the keys' first part
  int64_t rope_dim;    // of their second part
  int64_t dim_padded;  // of values

  // For keys and values of one size.
  static AttentionScratch For(int64_t group, int64_t dim, int64_t rope_dim) {
    const int64_t padded = PaddedFloats(dim);
    return {.rows = DivideUp(std::max(kAttentionRows, group), 16) * 16,
            .key_padded = padded,
            .rope_dim = rope_dim,
            .dim_padded = padded};
  }

  int64_t row_words() const { return std::max({key_padded, dim_padded, PaddedFloats(rope_dim)}); }
  int64_t key_words() const { return (key_padded + rope_dim) * kAttentionKeys; }
  int64_t value_words() const { return kAttentionKeys * dim_padded; }
  int64_t wide_words() const { return kAttentionStepRows * (key_padded + PaddedFloats(rope_dim)); }
  int64_t words() const {
    // Keys, values, converted rows, sums of all segments and of one, queries.
    return key_words() + value_words() + 16 * row_words() + 2 * SumsWords(rows, dim_padded) +
           wide_words();
  }

  // A piece for every thread, and zeros for all.
  int64_t Bytes(int threads) const {
    return tensor::Workspace::PaddedBytes(threads * words() * 4) +
           tensor::Workspace::PaddedBytes(row_words() * 4);
  }
  struct Memory {
    float* words;
    const char* zeros;
  };
  Memory Take(tensor::Workspace::Scope& scope, int threads) const {
    auto* all = scope.Take(tensor::DType::kF32, {threads, words()}).data<float>();
    auto* zeros = scope.Take(tensor::DType::kF32, {row_words()}).data<float>();
    std::fill_n(zeros, row_words(), 0.0f);
    return {all, reinterpret_cast<const char*>(zeros)};
  }

  void Divide(const Memory& memory, int thread, AttentionTile& tile) const {
    float* words_left = memory.words + thread * words();
    const auto take = [&words_left](int64_t count) {
      float* taken = words_left;
      words_left += count;
      return taken;
    };
    tile.dim_padded = dim_padded;
    tile.packed_keys = reinterpret_cast<uint32_t*>(take(key_words()));
    tile.packed_values = reinterpret_cast<uint32_t*>(take(value_words()));
    char* converted = reinterpret_cast<char*>(take(16 * row_words()));
    for (PagedRows* part : {&tile.keys, &tile.rope_keys, &tile.values}) {
      part->converted = converted;
      part->zeros = memory.zeros;
    }
    tile.result = SumsAt(take(SumsWords(rows, dim_padded)), rows, dim_padded);
    tile.segment_sums = SumsAt(take(SumsWords(rows, dim_padded)), rows, dim_padded);
    tile.wide_queries = take(wide_words());
  }
};

// What a tile leaves for ops/merge_attention.h, where that is asked for, once its kernel has run:
// the sums of its rows, and zeros for tokens that see no key.
inline void WriteExpSums(const AttentionTile& tile, const tensor::View& out,
                         const tensor::View& exp_sums) {
  if (exp_sums.empty()) return;
  const auto row_bytes =
      static_cast<size_t>(tile.head_dim) * static_cast<size_t>(tensor::SizeOf(out.dtype()));
  for (int64_t row = 0; row < tile.tokens * tile.group; ++row) {
    const int64_t token = row / tile.group;
    const int64_t head = row % tile.group;
    float* m_and_l = exp_sums.row<float>(tile.first_row + token) + 2 * (tile.first_head + head);
    if (tile.positions[token] < 0) {
      std::memset(tile.out + token * tile.out_token_stride + head * tile.out_head_stride, 0,
                  row_bytes);
      m_and_l[0] = -std::numeric_limits<float>::infinity();
      m_and_l[1] = 0;
      continue;
    }
    const float* parts = tile.result.denominators + row * 16;
    m_and_l[0] = tile.result.maxima[row];
    m_and_l[1] = std::accumulate(parts, parts + 16, 0.0F);
  }
}

// A step's rows cut into tiles of successive tokens of one slice.
class TokenTiles {
 public:
  static int64_t Bytes(int64_t rows) { return tensor::Workspace::PaddedBytes((rows + 1) * 8); }

  TokenTiles(tensor::Workspace::Scope& scope, const ops::StepTables& tables, int64_t tile_tokens)
      : row_begin_(tables.slice_row_begin.data<int32_t>()),
        slices_(tables.slices),
        tile_tokens_(tile_tokens),
        tile_begin_(scope.Take(tensor::DType::kI64, {slices_ + 1}).data<int64_t>()) {
    tile_begin_[0] = 0;
    for (int64_t slice = 0; slice < slices_; ++slice)
      tile_begin_[slice + 1] =
          tile_begin_[slice] + DivideUp(row_begin_[slice + 1] - row_begin_[slice], tile_tokens_);
  }

  struct Tile {
    int64_t slice;
    int64_t row;
    int64_t tokens;
  };
  int64_t count() const { return tile_begin_[slices_]; }
  Tile at(int64_t index) const {
    const int64_t slice =
        std::upper_bound(tile_begin_, tile_begin_ + slices_ + 1, index) - tile_begin_ - 1;
    const int64_t offset = (index - tile_begin_[slice]) * tile_tokens_;
    const int64_t left = row_begin_[slice + 1] - row_begin_[slice] - offset;
    return {slice, row_begin_[slice] - row_begin_[0] + offset, std::min(tile_tokens_, left)};
  }

 private:
  const int32_t* row_begin_;
  int64_t slices_;
  int64_t tile_tokens_;
  int64_t* tile_begin_;
};

}  // namespace longspan::backend::cpu
