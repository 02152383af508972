// Rotary position embedding (Su et al. 2021).
#pragma once

#include "spec/model.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Once per step, for all layers: the angles position * inverse_frequency, rounded to f32 (as every
// published checkpoint was trained), their cosines and sines, times `amplitude`.
struct RopeTableArgs {
  tensor::ConstView positions;            // i32 [rows]
  tensor::ConstView inverse_frequencies;  // f32 [dim / 2]
  float amplitude = 1;                    // yarn's factor on both
  tensor::View cosines;                   // f32 [rows, dim / 2]
  tensor::View sines;                     // f32 [rows, dim / 2]
};
using RopeTableOp = void (*)(tensor::ExecutionContext&, const RopeTableArgs&);

// Rotates every head in place: (a, b) -> (a cos - b sin, b cos + a sin).
struct RopeArgs {
  tensor::View x;  // f32 or bf16 [rows, heads, dim]
  tensor::ConstView cosines;
  tensor::ConstView sines;
  spec::RopePairs pairs = spec::RopePairs::kHalfSplit;
};
using RopeOp = void (*)(tensor::ExecutionContext&, const RopeArgs&);

void CheckArgs(const RopeTableArgs& args);
void CheckArgs(const RopeArgs& args);

}  // namespace longspan::ops
