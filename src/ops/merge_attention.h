// Merge attention: what rows got from parts of their keys becomes what they get from all.
#pragma once

#include <cstdint>

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Ranks of a stage.
inline constexpr int64_t kMostMergedParts = 64;

// parts[i] is the mean of the values of part i under the softmax of its scores, and exp_sums[i] the
// sum of exp(score) over its keys, as attention and latent_attention leave them (Dao et al.,
// Flash-Decoding 2023): m and l with sum = l 2^m, where 2^m is about the largest term. A logarithm
// of the sum would lose as many bits as it has digits before the point.
//   out = sum over i, in order, of l[i] 2^(m[i] - max m) parts[i] / sum over i of l[i] 2^(m[i] -
//   max m)
// in f32 or wider. A part without keys has m = -infinity and l = 0; one part at least has some.
struct MergeAttentionArgs {
  tensor::ConstView parts;     // f32 or bf16 [parts, rows, heads, dim], dense, up to 64 parts
  tensor::ConstView exp_sums;  // f32 [parts, rows, heads, 2], dense
  tensor::View out;            // of the parts' dtype [rows, heads, dim]
};
using MergeAttentionOp = void (*)(tensor::ExecutionContext&, const MergeAttentionArgs&);

void CheckArgs(const MergeAttentionArgs& args);

}  // namespace longspan::ops
