// Index selection in a cache that context-parallel ranks divide.
#pragma once

#include "model/step.h"

namespace longspan::model {

// What an indexer scores positions with, of the rows of this rank.
struct IndexQueries {
  tensor::ConstView queries;       // [rows, heads, dim]
  tensor::ConstView head_weights;  // f32 [rows, heads]
  float scale = 1;
};

// selected, i32 [rows of all ranks, top_k], dense, gets for every row those of its best positions
// that this rank has, as ops::IndexTakeArgs leaves them; the best are those that one rank would
// select. `cache` holds the index keys of this rank's pages. False where something went wrong
// between the ranks: `selected` is not to be used.
bool SelectAcrossRanks(const Step& step, const IndexQueries& own, const tensor::ConstView& cache,
                       const tensor::View& selected);

// Workspace that it takes for queries of so many heads and dimensions.
int64_t SelectAcrossRanksBytes(const StepBounds& bounds, int64_t heads, int64_t dim, int64_t top_k);

}  // namespace longspan::model
