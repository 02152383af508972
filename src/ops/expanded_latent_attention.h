// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434) in its expanded form: every head
// has keys and values of its own, made from the cached latents.
#pragma once

#include <span>

#include "ops/packed_weight.h"
#include "ops/step_tables.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Row r of a slice, at position p, attends to the cached positions 0 .. p of its sequence:
//   key[s] = K_head latent[s], followed by rope_key[s]; value[s] = V_head latent[s]
//   out = softmax(scale * query . key) value
// with scores and softmax in f32 or wider. Keys and values may be rounded to the queries' type. The
// same function as latent_attention between two products with K transposed and V, with other sums:
// cheaper for many rows, since a position is expanded once for the rows of a slice.
//
// Positions are taken in blocks, cut at fixed places of the sequence, and merged in order, so that
// a row's result does not depend on the other rows of the step nor on the number of threads. No
// more than a block of keys is ever expanded: workspace does not grow with the context.
struct ExpandedLatentAttentionArgs {
  tensor::ConstView queries;       // f32 or bf16 [rows, heads, nope + rope], of the weights' type
  tensor::ConstView latent_cache;  // f32 or bf16 [pages, 1, page_size, rank]
  tensor::ConstView rope_cache;    // of the same dtype [pages, 1, page_size, rope]
  std::span<const PackedWeight* const> key_weights;    // one per head, [nope, rank], nope even
  std::span<const PackedWeight* const> value_weights;  // one per head, [value, rank]
  StepTables tables;
  float scale = 1;
  tensor::View out;  // of the queries' dtype [rows, heads, value]
};
using ExpandedLatentAttentionOp = void (*)(tensor::ExecutionContext&,
                                           const ExpandedLatentAttentionArgs&);

void CheckArgs(const ExpandedLatentAttentionArgs& args);

}  // namespace longspan::ops
