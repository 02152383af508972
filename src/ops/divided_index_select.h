// Index selection (ops/index_select.h) where ranks divide the pages of a sequence: every rank finds
// the best positions that it has, the rank of a row merges those of all, and every rank keeps of
// its own what is left. The selection is the one that a rank with all pages makes.
#pragma once

#include <cstdint>

#include "ops/step_tables.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Of every row the best of the positions [0, p] that `tables` tell of, as many as there are
// columns; p, the row's position there, may be -1: none. Best are those with the largest scores, of
// equal f32 scores those with the lower positions; scores are those of index_select. Like there
// workspace does not grow with the context, and a row's candidates do not depend on the other rows.
struct IndexCandidatesArgs {
  tensor::ConstView queries;       // f32 or bf16 [rows, heads, dim]
  tensor::ConstView head_weights;  // f32 [rows, heads], of any sign
  tensor::ConstView index_cache;   // f32 or bf16 [pages, 1, page_size, dim]
  StepTables tables;
  // i32, as large as the page table: which page of its sequence each page is, ascending.
  tensor::ConstView page_indices;
  float scale = 1;  // above 0
  // f32 and i32 [rows, top_k], dense, best first; positions are those in the whole sequence. Padded
  // with -infinity and -1.
  tensor::View scores;
  tensor::View positions;
};
using IndexCandidatesOp = void (*)(tensor::ExecutionContext&, const IndexCandidatesArgs&);

void CheckArgs(const IndexCandidatesArgs& args);

// How many of every part's candidates are among the top_k best of all parts. No position is in two
// parts.
struct IndexMergeArgs {
  tensor::ConstView scores;     // f32 [parts, rows, top_k], dense, best first
  tensor::ConstView positions;  // i32, likewise
  tensor::View counts;          // i32 [parts, rows], dense
};
using IndexMergeOp = void (*)(tensor::ExecutionContext&, const IndexMergeArgs&);

void CheckArgs(const IndexMergeArgs& args);

// Of the candidates of every row the first counts[row], in the form in which latent_attention takes
// them: ascending, as positions that `tables` tell of, padded with -1.
struct IndexTakeArgs {
  tensor::ConstView counts;  // i32 [rows]
  StepTables tables;
  tensor::ConstView page_indices;  // as above
  int64_t page_size = 0;
  tensor::View positions;  // i32 [rows, top_k]: in and out
};
using IndexTakeOp = void (*)(tensor::ExecutionContext&, const IndexTakeArgs&);

void CheckArgs(const IndexTakeArgs& args);

}  // namespace longspan::ops
