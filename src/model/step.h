// What a block needs to know of the step that it computes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kv/kv_layout.h"
#include "model/stage_ranks.h"
#include "ops/dispatch.h"
#include "ops/step_tables.h"
#include "tensor/execution_context.h"

namespace longspan::model {

// The cache of one layer, by plane (kv/kv_layout.h): [pages, heads, page_size, dim] each.
struct LayerCache {
  std::array<tensor::View, kv::kMaxCachePlanes> planes;
};

// What the host knows of a slice.
struct SliceExtent {
  int64_t first_position = 0;
  int64_t rows = 0;
};

// Valid while one step is computed. Blocks take their scratch from context.workspace and give it
// back.
struct Step {
  tensor::ExecutionContext& context;
  const ops::OpTable& ops;
  StageRanks& ranks;
  ops::StepTables tables;
  tensor::ConstView cosines;  // f32 [rows, rotated dimensions / 2]
  tensor::ConstView sines;
  // Of all slices, in order; or empty: not known, and nothing is chosen by it.
  std::span<const SliceExtent> slices;

  // The step of the slices [first_slice, first_slice + count) alone, which have the rows
  // [first_row, first_row + rows).
  Step Part(int64_t first_slice, int64_t count, int64_t first_row, int64_t rows) const {
    return {context,
            ops,
            ranks,
            tables.Part(first_slice, count, first_row, rows),
            cosines.Rows(first_row, rows),
            sines.Rows(first_row, rows),
            slices.empty()
                ? slices
                : slices.subspan(static_cast<size_t>(first_slice), static_cast<size_t>(count))};
  }
};

}  // namespace longspan::model
