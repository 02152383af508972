// Index select: the positions that sparse attention reads (DeepSeek Sparse Attention's lightning
// indexer, DeepSeek-AI 2025, arXiv:2512.02556).
#pragma once

#include "ops/step_tables.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// For row r at position p of its sequence and every cached position s in [0, p]:
//   score[s] = sum over heads h, in order, of head_weights[h] * max(0, scale * queries[h] . key[s])
// in f32 or wider, with a rounding to f32 at the end at most. Selected are the top_k positions with
// the largest scores, of equal f32 scores the lower positions (zeros of both signs are equal; a NaN
// counts as minus infinity); all of them where p < top_k, without reading a key. The keys are
// taken tile by tile: workspace does not grow with the context. A row's selection does not depend
// on the other rows of the step nor on the number of threads.
struct IndexSelectArgs {
  tensor::ConstView queries;       // f32 or bf16 [rows, heads, dim]
  tensor::ConstView head_weights;  // f32 [rows, heads], of any sign
  tensor::ConstView index_cache;   // f32 or bf16 [pages, 1, page_size, dim]
  StepTables tables;
  float scale = 1;        // above 0
  tensor::View selected;  // i32 [rows, top_k]: ascending positions, padded with -1 at the end
};
using IndexSelectOp = void (*)(tensor::ExecutionContext&, const IndexSelectArgs&);

void CheckArgs(const IndexSelectArgs& args);

}  // namespace longspan::ops
