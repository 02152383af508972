// RMSNorm (Zhang and Sennrich 2019): out = x / sqrt(mean(x^2) + epsilon) * weight over the last
// dimension, with the mean in f32 or wider and one rounding at the end.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

struct RmsNormArgs {
  tensor::ConstView x;       // f32 or bf16, [rows, d] or [rows, heads, d]
  tensor::ConstView weight;  // f32 [d]
  double epsilon = 1e-6;
  tensor::View out;  // as x; may be x itself
};
using RmsNormOp = void (*)(tensor::ExecutionContext&, const RmsNormArgs&);

void CheckArgs(const RmsNormArgs& args);

}  // namespace longspan::ops
