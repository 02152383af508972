// What the argument checks of this folder share.
#pragma once

#include "base/check.h"
#include "ops/step_tables.h"
#include "tensor/view.h"

namespace longspan::ops {

inline bool IsFloat(const tensor::ConstView& view) {
  return view.dtype() == tensor::DType::kF32 || view.dtype() == tensor::DType::kBf16;
}

inline bool SameShape(const tensor::ConstView& a, const tensor::ConstView& b) {
  if (a.rank() != b.rank() || a.dtype() != b.dtype()) return false;
  for (int i = 0; i < a.rank(); ++i)
    if (a.size(i) != b.size(i)) return false;
  return true;
}

inline void CheckTable(const tensor::ConstView& view, tensor::DType dtype, int64_t entries,
                       const char* name) {
  LONGSPAN_CHECK(view.dtype() == dtype && view.elements() >= entries && view.contiguous(),
                 "{} needs {} entries of {}", name, entries, tensor::DTypeName(dtype));
}

inline void CheckCache(const tensor::ConstView& cache) {
  LONGSPAN_CHECK(cache.rank() == 4 && IsFloat(cache) && cache.contiguous(),
                 "a cache is dense [pages, heads, page_size, dim]");
}

// The tables of a step that reads caches with pages of that size.
inline void CheckPagedTables(const StepTables& tables, int64_t page_size) {
  using tensor::DType;
  CheckTable(tables.positions, DType::kI32, tables.rows, "positions");
  CheckTable(tables.slice_row_begin, DType::kI32, tables.slices + 1, "slice_row_begin");
  LONGSPAN_CHECK(tables.page_table.dtype() == DType::kI32 && tables.page_table.rank() == 2 &&
                     tables.page_table.size(0) >= tables.slices &&
                     tables.page_table.size(1) * page_size >= tables.max_kv_length,
                 "the page table is too small for {} tokens", tables.max_kv_length);
}

// Of attention whose result is `out`.
inline void CheckExpSums(const tensor::ConstView& sums, const tensor::ConstView& out) {
  LONGSPAN_CHECK(sums.empty() || (sums.dtype() == tensor::DType::kF32 && sums.rank() == 3 &&
                                  sums.size(0) == out.size(0) && sums.size(1) == out.size(1) &&
                                  sums.size(2) == 2 && sums.contiguous()),
                 "exp_sums are f32 [rows, heads, 2]");
}

}  // namespace longspan::ops
