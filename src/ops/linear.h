// Linear: out = x W^T + bias.
#pragma once

#include "ops/packed_weight.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Products of x's dtype are summed in f32 or wider in an order over the columns that does not
// depend on the number of rows: a row's result is the same bits whichever rows come with it.
struct LinearArgs {
  tensor::ConstView x;  // f32 or bf16 [rows, columns]: the weight's compute type
  const PackedWeight* weight = nullptr;
  tensor::ConstView bias;  // f32 [weight rows], or empty
  tensor::View out;        // f32 or x's dtype [rows, weight rows]
};
using LinearOp = void (*)(tensor::ExecutionContext&, const LinearArgs&);

void CheckArgs(const LinearArgs& args);

}  // namespace longspan::ops
