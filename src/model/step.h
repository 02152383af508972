// What a block needs to know of the step that it computes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kv/kv_layout.h"
#include "model/stage_ranks.h"
#include "ops/backend.h"
#include "ops/dispatch.h"
#include "ops/step_tables.h"
#include "tensor/execution_context.h"

namespace longspan::model {

// The cache of one layer, by plane (kv/kv_layout.h): [pages, heads, page_size, dim] each.
struct LayerCache {
  std::array<tensor::View, kv::kMaxCachePlanes> planes;
};

// What the host knows of a slice: the positions [begin, end), of which a context-parallel rank may
// have some rows only.
struct SliceExtent {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t rows = 0;
};

// Where context-parallel ranks divide a step: all its rows, rank by rank.
struct GatheredRows {
  int rank = 0;                     // whose step this is
  std::span<const int64_t> counts;  // rows of every rank; empty where one has them all
  tensor::ConstView own_places;     // i64 [own rows]: 0, 1, 2 ...
  // i64: where the rows are cached that come to this rank: all rows, or those that it keeps.
  tensor::ConstView slots;

  // Where the cache is divided over the ranks, page by page.
  bool sharded = false;
  tensor::ConstView owner_places;     // i64 [own rows]: their order by the rank that keeps them
  std::span<const int64_t> outgoing;  // how many of them every rank keeps,
  std::span<const int64_t> incoming;  // and how many of its own this one does
  ops::StepTables tables;             // of all rows, over the pages that this rank has,
  tensor::ConstView page_indices;     // and which page of its sequence each of these is
};

// The largest step, for counting scratch.
struct StepBounds {
  int64_t rows = 0;
  int64_t gathered_rows = 0;  // of all context-parallel ranks; 0 where there is one
  int64_t sharing_ranks = 0;  // that divide the cache; 0 where every one has it
  tensor::DType compute = tensor::DType::kF32;
  tensor::DType cache = tensor::DType::kF32;
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
  GatheredRows gathered;
  // For what a block decides on the host: copies to and from the memory of the step, and the rows'
  // positions. Null and empty where no block does.
  const ops::Backend* backend = nullptr;
  std::span<const int32_t> host_positions;

  // The step of the slices [first_slice, first_slice + count) alone, which have the rows
  // [first_row, first_row + rows). For what does not write to the cache; a divided one is attended
  // to by whole steps only.
  Step Part(int64_t first_slice, int64_t count, int64_t first_row, int64_t rows) const {
    return {context,
            ops,
            ranks,
            tables.Part(first_slice, count, first_row, rows),
            cosines.Rows(first_row, rows),
            sines.Rows(first_row, rows),
            slices.empty()
                ? slices
                : slices.subspan(static_cast<size_t>(first_slice), static_cast<size_t>(count)),
            gathered,
            backend,
            host_positions.empty() ? host_positions
                                   : host_positions.subspan(static_cast<size_t>(first_row),
                                                            static_cast<size_t>(rows))};
  }
};

}  // namespace longspan::model
