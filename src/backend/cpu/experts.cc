// Routing of rows to experts, and back.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/logits.h"
#include "ops/backend.h"
#include "tensor/workspace.h"

namespace longspan::backend::cpu {
namespace {

// The k experts with the largest logits (the softmax is monotone), largest first, ties to the
// lower expert.
void ChooseExperts(const float* logits, int64_t experts, int64_t choices, int32_t* ids) {
  int64_t chosen = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const double logit = Logit(logits[expert]);
    if (chosen == choices && !(logit > Logit(logits[ids[choices - 1]]))) continue;
    int64_t place = chosen < choices ? chosen++ : choices - 1;
    for (; place > 0 && logit > Logit(logits[ids[place - 1]]); --place) ids[place] = ids[place - 1];
    ids[place] = static_cast<int32_t>(expert);
  }
}

void RouteRow(const KernelTable& kernels, const ops::RouterArgs& args, int64_t row) {
  const int64_t experts = args.logits.size(1);
  const int64_t choices = args.expert_ids.size(1);
  const float* logits = args.logits.row<float>(row);
  auto* ids = args.expert_ids.row<int32_t>(row);
  auto* weights = args.expert_weights.row<float>(row);
  ChooseExperts(logits, experts, choices, ids);
  const double largest = Logit(logits[ids[0]]);
  const auto relative = [&](int64_t choice) {
    return std::exp(Logit(logits[ids[choice]]) - largest);
  };
  double sum = 0;
  if (args.normalize_weights) {
    for (int64_t choice = 0; choice < choices; ++choice) sum += relative(choice);
  } else {
    float max = 0;
    kernels.exp_sum(logits, experts, &max, &sum);
  }
  for (int64_t choice = 0; choice < choices; ++choice)
    weights[choice] = static_cast<float>(relative(choice) / sum * args.scale);
}

// Sigmoid scores with bias and groups, of one row.
class SigmoidRow {
 public:
  // Scores and claims of the experts, claims of the groups.
  static int64_t ScratchFloats(int64_t experts) { return 3 * experts; }

  SigmoidRow(const ops::RouterArgs& args, int64_t row, float* scratch)
      : args_(args),
        group_size_(args.logits.size(1) / args.groups),
        scores_(scratch),
        claims_(scratch + args.logits.size(1)),
        group_claims_(scratch + 2 * args.logits.size(1)) {
    const float* logits = args.logits.row<float>(row);
    const float* bias = args.bias.empty() ? nullptr : args.bias.data<float>();
    for (int64_t expert = 0; expert < args.logits.size(1); ++expert) {
      scores_[expert] = static_cast<float>(1 / (1 + std::exp(-Logit(logits[expert]))));
      claims_[expert] = scores_[expert] + (bias == nullptr ? 0.0f : bias[expert]);
    }
    for (int64_t group = 0; group < args.groups; ++group)
      group_claims_[group] = GroupClaim(claims_ + group * group_size_);
  }

  // `weights` holds the claims of the chosen ones on the way.
  void Route(int64_t choices, int32_t* ids, float* weights) const {
    int64_t chosen = 0;
    for (int64_t group = 0; group < args_.groups; ++group) {
      if (!Kept(group)) continue;
      for (int64_t expert = group * group_size_; expert < (group + 1) * group_size_; ++expert) {
        const float claim = claims_[expert];
        if (chosen == choices && !(claim > weights[choices - 1])) continue;
        int64_t place = chosen < choices ? chosen++ : choices - 1;
        for (; place > 0 && claim > weights[place - 1]; --place) {
          ids[place] = ids[place - 1];
          weights[place] = weights[place - 1];
        }
        ids[place] = static_cast<int32_t>(expert);
        weights[place] = claim;
      }
    }
    double sum = 1e-20;
    for (int64_t choice = 0; choice < choices; ++choice)
      sum += weights[choice] = scores_[ids[choice]];
    const double factor = args_.normalize_weights ? args_.scale / sum : args_.scale;
    for (int64_t choice = 0; choice < choices; ++choice)
      weights[choice] = static_cast<float>(weights[choice] * factor);
  }

 private:
  float GroupClaim(const float* claims) const {
    float best = claims[0];
    if (group_size_ == 1) return best;
    float second = -std::numeric_limits<float>::infinity();
    for (int64_t i = 1; i < group_size_; ++i) {
      second = std::max(second, std::min(best, claims[i]));
      best = std::max(best, claims[i]);
    }
    return best + second;
  }

  // Whether fewer than groups_kept groups come before it.
  bool Kept(int64_t group) const {
    const float own = group_claims_[group];
    int64_t before = 0;
    for (int64_t other = 0; other < args_.groups; ++other) {
      const float claim = group_claims_[other];
      if (claim > own || (claim == own && other < group)) ++before;
    }
    return before < args_.groups_kept;
  }

  const ops::RouterArgs& args_;
  int64_t group_size_;
  float* scores_;
  float* claims_;
  float* group_claims_;
};

}  // namespace

int64_t RouterWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  return tensor::Workspace::PaddedBytes(threads * SigmoidRow::ScratchFloats(shape.experts) * 4);
}

void Router(tensor::ExecutionContext& context, const ops::RouterArgs& args) {
  if (args.scoring == spec::ExpertScoring::kSigmoid) {
    const int64_t experts = args.logits.size(1);
    const int64_t floats = SigmoidRow::ScratchFloats(experts);
    tensor::Workspace::Scope scope(context.workspace);
    auto* scratch =
        scope.Take(tensor::DType::kF32, {Pool(context).threads(), floats}).data<float>();
    // An exponential costs some tens of simple operations.
    ForRows(context, args.logits.size(0), 32 * experts, [&](int64_t row, int thread) {
      SigmoidRow(args, row, scratch + thread * floats)
          .Route(args.expert_ids.size(1), args.expert_ids.row<int32_t>(row),
                 args.expert_weights.row<float>(row));
    });
    return;
  }
  const KernelTable& kernels = ActiveKernels();
  ForRows(context, args.logits.size(0), 8 * args.logits.size(1),
          [&](int64_t row) { RouteRow(kernels, args, row); });
}

// A counting sort.
void ExpertOrder(tensor::ExecutionContext&, const ops::ExpertOrderArgs& args) {
  const int64_t rows = args.expert_ids.size(0);
  const int64_t choices = args.expert_ids.size(1);
  const int64_t experts = args.expert_begin.size(0) - 1;
  auto* begin = args.expert_begin.data<int32_t>();
  auto* source_rows = args.source_rows.data<int32_t>();
  std::fill_n(begin, experts + 1, 0);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t choice = 0; choice < choices; ++choice)
      ++begin[args.expert_ids.row<int32_t>(row)[choice] + 1];
  begin[0] = 0;  // the pairs without an expert were counted here
  for (int64_t expert = 0; expert < experts; ++expert) begin[expert + 1] += begin[expert];
  // Places are handed out from begin[expert] on, which so moves to the next expert's begin.
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t choice = 0; choice < choices; ++choice) {
      const int32_t expert = args.expert_ids.row<int32_t>(row)[choice];
      const int32_t place = expert < 0 ? -1 : begin[expert]++;
      args.sorted_places.row<int32_t>(row)[choice] = place;
      if (place >= 0) source_rows[place] = static_cast<int32_t>(row);
    }
  }
  std::copy_backward(begin, begin + experts, begin + experts + 1);
  begin[0] = 0;
}

void ExpertCombine(tensor::ExecutionContext& context, const ops::ExpertCombineArgs& args) {
  const auto combine = ActiveKernels().combine[TypeOf(args.x)];
  const int64_t choices = args.sorted_places.size(1);
  const int64_t columns = args.out.size(1);
  CombineRow common;
  common.x = static_cast<const char*>(args.x.raw());
  common.x_stride = args.x.stride(0) * tensor::SizeOf(args.x.dtype());
  common.terms = choices;
  common.columns = columns;
  ForRows(context, args.out.size(0), choices * columns, [&](int64_t row) {
    CombineRow sum = common;
    sum.places = args.sorted_places.row<int32_t>(row);
    sum.weights = args.expert_weights.row<float>(row);
    sum.out = RowAt(args.out, row);
    combine(sum);
  });
}

}  // namespace longspan::backend::cpu
