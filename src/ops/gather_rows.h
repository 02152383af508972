// Gather: picks rows of a matrix, for example those that need logits.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

struct GatherRowsArgs {
  tensor::ConstView x;      // [m, columns]
  tensor::ConstView index;  // i32 [n], each in [0, m)
  tensor::View out;         // [n, columns], of x's dtype
};
using GatherRowsOp = void (*)(tensor::ExecutionContext&, const GatherRowsArgs&);

void CheckArgs(const GatherRowsArgs& args);

}  // namespace longspan::ops
