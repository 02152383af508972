// Merge attention: what rows got from parts of their keys becomes what they get from all.
#pragma once

#include <cstdint>

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Ranks of a stage.
inline constexpr int64_t kMostMergedParts = 64;

// log_sums[i] is log(sum of exp(score)) over the keys of part i, and parts[i] the mean of its
// values under the softmax of these scores, as attention and latent_attention leave them (Dao et
// al., Flash-Decoding 2023):
//   out = sum over i, in order, of exp(log_sums[i]) parts[i] / sum over i of exp(log_sums[i])
// in f32 or wider. A part without keys has -infinity; one part at least has some.
struct MergeAttentionArgs {
  tensor::ConstView parts;     // f32 or bf16 [parts, rows, heads, dim], dense, up to 64 parts
  tensor::ConstView log_sums;  // f32 [parts, rows, heads], dense
  tensor::View out;            // of the parts' dtype [rows, heads, dim]
};
using MergeAttentionOp = void (*)(tensor::ExecutionContext&, const MergeAttentionArgs&);

void CheckArgs(const MergeAttentionArgs& args);

}  // namespace longspan::ops
