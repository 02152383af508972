// Attention over the paged KV cache: grouped-query, causal, for prefill chunks and decoding rows
// alike.
#pragma once

#include "ops/step_tables.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Row r of a slice, at position p, attends to the cached positions 0 .. p of its sequence (its own
// K and V are in the cache already): out = softmax(scale * q K^T) V, scores and softmax in f32 or
// wider. Query head h uses KV head h / (heads / kv_heads). The keys are taken in blocks cut at page
// borders and merged in position order, so that a row's result does not depend on the other rows of
// the step nor on the number of threads.
struct AttentionArgs {
  tensor::ConstView queries;      // f32 or bf16 [rows, heads, head_dim]
  tensor::ConstView key_cache;    // f32 or bf16 [pages, kv_heads, page_size, head_dim]
  tensor::ConstView value_cache;  // likewise
  StepTables tables;
  float scale = 1;
  tensor::View out;  // of the queries' dtype [rows, heads, head_dim]
  // f32 [rows, heads, 2], dense, or empty: not wanted. The sum of exp(score) of every row and head,
  // with which parts of a row's keys are merged, as m and l of ops/merge_attention.h. Where it is
  // given a position may be -1: the row sees no key, its result is 0, m -infinity and l 0.
  tensor::View exp_sums;
};
using AttentionOp = void (*)(tensor::ExecutionContext&, const AttentionArgs&);

void CheckArgs(const AttentionArgs& args);

}  // namespace longspan::ops
