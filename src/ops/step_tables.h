// The device tables that describe the rows of one step.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace longspan::ops {

// A step holds rows (tokens) of several slices; a slice is a run of consecutive positions of one
// sequence: a prefill chunk, or the one token of a decode. Kernels read counts and lengths from the
// tables; the host values here are bounds for sizing grids and loops (and equal to the counts on
// host backends).
struct StepTables {
  int64_t rows = 0;
  int64_t slices = 0;
  int64_t max_kv_length = 0;  // tokens in the cache after this step, of the longest slice

  tensor::ConstView positions;        // i32 [rows]: position of the row in its sequence
  tensor::ConstView slots;            // i64 [rows]: page * page_size + offset where it is cached
  tensor::ConstView slice_row_begin;  // i32 [slices + 1]: the first row of every slice
  tensor::ConstView page_table;  // i32 [slices, max_pages]: pages of the slice's sequence, in order
};

}  // namespace longspan::ops
