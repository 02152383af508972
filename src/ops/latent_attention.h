// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434) in its absorbed form: all heads
// attend to the one latent per token, dense or to selected positions only.
#pragma once

#include "ops/step_tables.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Row r of a slice, at position p, attends to the cached positions 0 .. p of its sequence, or to
// the selected ones among them (its own latent is in the cache already):
//   score[s] = scale * (latent_query . latent[s] + rope_query . rope_key[s])
//   out = sum over s of softmax(score)[s] * latent[s]
// with scores and softmax in f32 or wider. The expansion of the queries into the space of the
// latents, and of `out` to values, is the caller's. Positions are taken in blocks, cut at fixed
// places of the sequence or of the row's list, and merged in order, so that a row's result does
// not depend on the other rows of the step nor on the number of threads. Where a list holds every
// position 0 .. p, the result equals that without lists; for `reference` bit by bit. No position
// that is not selected is read.
struct LatentAttentionArgs {
  tensor::ConstView latent_queries;  // f32 or bf16 [rows, heads, rank]
  tensor::ConstView rope_queries;    // of the same dtype [rows, heads, rope]
  tensor::ConstView latent_cache;    // f32 or bf16 [pages, 1, page_size, rank]
  tensor::ConstView rope_cache;      // of the same dtype [pages, 1, page_size, rope]
  StepTables tables;
  float scale = 1;
  // i32 [rows, top_k]: positions of the row's sequence in [0, p], ascending, at least one, padded
  // with -1 at the end (as index_select leaves them); or empty: all positions 0 .. p.
  tensor::ConstView selected;
  tensor::View out;  // of the queries' dtype [rows, heads, rank]
  // f32 [rows, heads, 2], dense, or empty: not wanted. The sum of exp(score) of every row and head,
  // with which parts of a row's keys are merged, as m and l of ops/merge_attention.h. Where it is
  // given a position may be -1, and a list empty: the row sees no key, its result is 0, m -infinity
  // and l 0.
  tensor::View exp_sums;
};
using LatentAttentionOp = void (*)(tensor::ExecutionContext&, const LatentAttentionArgs&);

void CheckArgs(const LatentAttentionArgs& args);

}  // namespace longspan::ops
