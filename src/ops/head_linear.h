// Head linear: a product with a matrix of its own for every head.
#pragma once

#include <span>

#include "ops/packed_weight.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// out[row, head] = W_head x[row, head]. Sums as in Linear: a row's result does not depend on which
// rows come with it.
struct HeadLinearArgs {
  tensor::ConstView x;  // f32 or bf16 [rows, heads, columns]: the weights' compute type
  std::span<const PackedWeight* const> weights;  // one per head, all of one shape [n, columns]
  tensor::View out;                              // of x's dtype [rows, heads, n]
};
using HeadLinearOp = void (*)(tensor::ExecutionContext&, const HeadLinearArgs&);

void CheckArgs(const HeadLinearArgs& args);

}  // namespace longspan::ops
