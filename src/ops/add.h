// Add: x += y, the residual stream takes a block's output.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

struct AddArgs {
  tensor::View x;       // f32 or bf16 [rows, columns]
  tensor::ConstView y;  // as x
};
using AddOp = void (*)(tensor::ExecutionContext&, const AddArgs&);

void CheckArgs(const AddArgs& args);

}  // namespace longspan::ops
