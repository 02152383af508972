// LayerNorm (Ba et al. 2016): out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
// over the last dimension, with mean and variance (of all d, not d - 1) in f32 or wider and one
// rounding at the end. The variance is that of the centred values: a large mean costs no digits.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

struct LayerNormArgs {
  tensor::ConstView x;       // f32 or bf16 [rows, d]
  tensor::ConstView weight;  // f32 [d]
  tensor::ConstView bias;    // f32 [d]
  double epsilon = 1e-6;
  tensor::View out;  // as x; may be x itself
};
using LayerNormOp = void (*)(tensor::ExecutionContext&, const LayerNormArgs&);

void CheckArgs(const LayerNormArgs& args);

}  // namespace longspan::ops
