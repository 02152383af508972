// Embedding: tokens to rows of the embedding matrix.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

struct EmbeddingArgs {
  tensor::ConstView table;   // f32 or bf16 [vocab, hidden]
  tensor::ConstView tokens;  // i32 [rows], each in [0, vocab)
  tensor::View out;          // f32 or bf16 [rows, hidden]
};
using EmbeddingOp = void (*)(tensor::ExecutionContext&, const EmbeddingArgs&);

void CheckArgs(const EmbeddingArgs& args);

}  // namespace longspan::ops
