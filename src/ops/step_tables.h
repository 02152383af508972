// The device tables that describe the rows of one step.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace longspan::ops {

// A step holds rows (tokens) of several slices; a slice is a run of positions of one sequence: a
// prefill chunk, or the one token of a decode. They ascend, and follow each other without gaps but
// where context-parallel ranks divide a chunk. Kernels read counts and
// lengths from the tables; the host values here are bounds for sizing grids and loops (and equal to
// the counts on host backends).
struct StepTables {
  int64_t rows = 0;
  int64_t slices = 0;
  int64_t max_kv_length = 0;  // tokens in the cache after this step, of the longest slice

  tensor::ConstView positions;  // i32 [rows]: position of the row in its sequence
  tensor::ConstView slots;      // i64 [rows]: page * page_size + offset where it is cached
  // i32 [slices + 1]: the first row of every slice. Counted from its first entry, which is 0 unless
  // these are the tables of a part of a step.
  tensor::ConstView slice_row_begin;
  tensor::ConstView page_table;  // i32 [slices, max_pages]: pages of the slice's sequence, in order

  // The tables of the slices [first_slice, first_slice + count), which have the rows [first_row,
  // first_row + row_count). An op that gets them gets these rows of its other arguments.
  StepTables Part(int64_t first_slice, int64_t count, int64_t first_row, int64_t row_count) const {
    return {.rows = row_count,
            .slices = count,
            .max_kv_length = max_kv_length,
            .positions = positions.Rows(first_row, row_count),
            .slots = slots.Rows(first_row, row_count),
            .slice_row_begin = slice_row_begin.Rows(first_slice, count + 1),
            .page_table = page_table.Rows(first_slice, count)};
  }
};

}  // namespace longspan::ops
