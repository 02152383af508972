// Router: which experts a row goes to, and with what weights.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Softmax over all experts in f32, then the k largest in descending order, ties to the lower
// expert.
struct RouterArgs {
  tensor::ConstView logits;       // f32 [rows, experts]
  bool normalize_weights = true;  // divide the chosen weights by their sum
  tensor::View expert_ids;        // i32 [rows, k]
  tensor::View expert_weights;    // f32 [rows, k]
};
using RouterOp = void (*)(tensor::ExecutionContext&, const RouterArgs&);

void CheckArgs(const RouterArgs& args);

}  // namespace longspan::ops
