// SwiGLU's gate (Shazeer 2020): out = silu(gate) * up.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

struct SiluMulArgs {
  tensor::ConstView gate_up;  // f32 or bf16 [rows, 2 * columns]: gate, then up
  tensor::View out;           // of the same dtype [rows, columns]; may be the gate's own columns
};
using SiluMulOp = void (*)(tensor::ExecutionContext&, const SiluMulArgs&);

void CheckArgs(const SiluMulArgs& args);

}  // namespace longspan::ops
