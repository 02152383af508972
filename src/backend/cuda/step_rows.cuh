// A step's tables as kernels see them: which rows a block computes, and where keys lie.
#pragma once

#include <cstdint>

#include "ops/step_tables.h"

namespace longspan::backend::cuda {

// n / divisor for 0 <= n < 2^31 by a multiplication (Granlund and Montgomery 1994).
struct Divider {
  uint32_t divisor = 1;
  uint32_t multiplier = 0;
  uint32_t shift = 0;

  static Divider Of(int64_t divisor) {
    Divider d;
    d.divisor = static_cast<uint32_t>(divisor);
    while ((int64_t{1} << d.shift) < divisor) ++d.shift;
    const uint64_t above = (uint64_t{1} << d.shift) - static_cast<uint64_t>(divisor);
    d.multiplier = static_cast<uint32_t>((above << 32) / static_cast<uint64_t>(divisor) + 1);
    return d;
  }
#ifdef __CUDACC__
  __device__ uint32_t Quotient(uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
#endif
};

struct DeviceTables {
  const int32_t* positions;
  const int32_t* slice_row_begin;
  const int32_t* first_row;  // what rows are counted from
  const int32_t* page_table;
  int64_t page_table_stride;
  int32_t slices;

  static DeviceTables Of(const ops::StepTables& tables) {
    return {tables.positions.data<int32_t>(),
            tables.slice_row_begin.data<int32_t>(),
            tables.slice_row_begin.data<int32_t>(),
            tables.page_table.data<int32_t>(),
            tables.page_table.stride(0),
            static_cast<int32_t>(tables.slices)};
  }

  // One slice alone, with its rows where they are.
  DeviceTables Slice(int64_t slice) const {
    DeviceTables one = *this;
    one.slice_row_begin += slice;
    one.page_table += slice * page_table_stride;
    one.slices = 1;
    return one;
  }
};

// Where the tokens of one plane of a cache lie: [pages, heads, page_size, dim]. Counted in rows of
// `dim` elements, of which a head of a page has page_size.
struct CachePages {
  Divider page_size;
  int64_t heads;

  static CachePages Of(const tensor::ConstView& cache) {
    return {Divider::Of(cache.size(2)), cache.size(1)};
  }
#ifdef __CUDACC__
  // Of a position of the sequence with that row of the page table.
  __device__ int64_t RowOf(const int32_t* pages, int64_t head, int32_t position) const {
    const uint32_t page = page_size.Quotient(static_cast<uint32_t>(position));
    const uint32_t offset = static_cast<uint32_t>(position) - page * page_size.divisor;
    return (pages[page] * heads + head) * page_size.divisor + offset;
  }
#endif
};

// Blocks compute tiles of `tile` successive queries of a slice, of which a row has `per_row` (the
// heads that share keys, one after the other). This many tiles there are at most.
inline int64_t TileBound(const ops::StepTables& tables, int64_t per_row, int64_t tile) {
  return tables.rows * per_row / tile + tables.slices;
}

#ifdef __CUDACC__
// Queries [first, first + count) of a slice, counted from its first row's first query.
struct QueryTile {
  int32_t slice;  // -1: there is no such tile
  int32_t first;
  int32_t count;
  int32_t slice_row;  // the slice's first row among those of the op
};

// Tile `index` of all slices with at least `min_rows` rows. To be called by whole warps.
__device__ inline QueryTile FindTile(const DeviceTables& tables, int32_t index, int32_t per_row,
                                     int32_t tile, int32_t min_rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t first_row = *tables.first_row;
  int32_t before = 0;
  for (int32_t begin = 0; begin < tables.slices; begin += 32) {
    const int32_t slice = begin + lane;
    int32_t row = 0;
    int32_t queries = 0;
    if (slice < tables.slices) {
      row = tables.slice_row_begin[slice];
      const int32_t rows = tables.slice_row_begin[slice + 1] - row;
      if (rows >= min_rows) queries = rows * per_row;
    }
    const int32_t tiles = (queries + tile - 1) / tile;
    int32_t end = tiles;  // inclusive sum over lanes
    for (int step = 1; step < 32; step *= 2) {
      const int32_t other = __shfl_up_sync(0xffffffff, end, step);
      if (lane >= step) end += other;
    }
    end += before;
    const uint32_t behind = __ballot_sync(0xffffffff, end > index);
    if (behind != 0) {
      const int owner = __ffs(static_cast<int>(behind)) - 1;
      const int32_t place = index - (end - tiles);
      QueryTile found = {slice, place * tile, min(tile, queries - place * tile), row - first_row};
      found.slice = __shfl_sync(0xffffffff, found.slice, owner);
      found.first = __shfl_sync(0xffffffff, found.first, owner);
      found.count = __shfl_sync(0xffffffff, found.count, owner);
      found.slice_row = __shfl_sync(0xffffffff, found.slice_row, owner);
      return found;
    }
    before = __shfl_sync(0xffffffff, end, 31);
  }
  return {-1, 0, 0, 0};
}
#endif

}  // namespace longspan::backend::cuda
