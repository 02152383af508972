// Embedding: tokens to rows of the embedding matrix.
#pragma once

#include "ops/packed_weight.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

struct EmbeddingArgs {
  tensor::ConstView table;  // f32 or bf16 [vocab, hidden]
  // Or, where `table` is empty, a matrix of that shape which is_table(), in the type that it was
  // packed for.
  const PackedWeight* packed = nullptr;
  tensor::ConstView tokens;  // i32 [rows], each in [0, vocab)
  tensor::View out;          // f32 or bf16 [rows, hidden]
};
using EmbeddingOp = void (*)(tensor::ExecutionContext&, const EmbeddingArgs&);

void CheckArgs(const EmbeddingArgs& args);

}  // namespace longspan::ops
