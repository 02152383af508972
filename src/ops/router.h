// Router: which experts a row goes to, and with what weights.
#pragma once

#include "spec/model.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Scores s are the softmax over all experts, or the sigmoid of every logit, in f32 or wider.
//
// Softmax: the k largest logits are chosen, in descending order, ties to the lower expert; there
// are no groups and no bias.
//
// Sigmoid (DeepSeek-V3, arXiv:2412.19437): an expert's claim is s + bias. Experts [g * n, (g + 1) *
// n) with n = experts / groups are group g; its claim is the sum of its two largest claims (of its
// only one where n is 1), and the groups_kept groups with the largest are kept, ties to the lower
// group. Of their experts the k with the largest claims are chosen, in descending order, ties to
// the lower expert. The bias does not enter the weights.
//
// weight = s * scale, or with normalize_weights s / (sum of the chosen s) * scale, where the
// sigmoid adds 1e-20 to the sum.
struct RouterArgs {
  tensor::ConstView logits;  // f32 [rows, experts]
  spec::ExpertScoring scoring = spec::ExpertScoring::kSoftmax;
  tensor::ConstView bias;  // f32 [experts], or empty
  int64_t groups = 1;      // divides the number of experts
  int64_t groups_kept = 1;
  bool normalize_weights = true;
  float scale = 1;
  tensor::View expert_ids;      // i32 [rows, k], k at most the experts of the kept groups
  tensor::View expert_weights;  // f32 [rows, k]
};
using RouterOp = void (*)(tensor::ExecutionContext&, const RouterArgs&);

void CheckArgs(const RouterArgs& args);

}  // namespace longspan::ops
