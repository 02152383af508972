// Where the tokens of a sequence lie in a paged cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/step_tables.h"

namespace longspan::backend::reference {

inline int64_t SliceOfRow(const ops::StepTables& tables, int64_t row) {
  const auto* begin = tables.slice_row_begin.data<int32_t>();
  return std::upper_bound(begin, begin + tables.slices + 1, begin[0] + row) - begin - 1;
}

// One head of one sequence.
struct PagedHead {
  const float* cache;    // [pages, heads, page_size, dim], from this head's first token
  int64_t page_stride;   // elements
  const int32_t* pages;  // of the sequence
  int64_t page_size;
  int64_t dim;

  // Of the sequence that `row` belongs to.
  static PagedHead Of(const tensor::ConstView& cache, const ops::StepTables& tables, int64_t row,
                      int64_t head) {
    return {cache.data<float>() + head * cache.stride(1), cache.stride(0),
            tables.page_table.row<int32_t>(SliceOfRow(tables, row)), cache.size(2), cache.size(3)};
  }

  const float* at(int64_t position) const {
    return cache + pages[position / page_size] * page_stride + position % page_size * dim;
  }
};

}  // namespace longspan::backend::reference
