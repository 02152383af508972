// Which experts a row goes to.
#include "backend/reference/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/kernels.h"
#include "backend/reference/logits.h"
#include "backend/reference/thread_scratch.h"

namespace longspan::backend::reference {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// The indices of the `count` largest of `values`, in descending order, ties to the lower index.
void Largest(const double* values, int64_t size, int64_t count, int32_t* indices) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t best = -1;
    for (int64_t index = 0; index < size; ++index) {
      if (std::find(indices, indices + i, index) != indices + i) continue;
      if (best < 0 || values[index] > values[best]) best = index;
    }
    indices[i] = static_cast<int32_t>(best);
  }
}

// The softmax is monotone: the largest logits have the largest probabilities.
void RouteSoftmax(const ops::RouterArgs& args, int64_t row, double* logits) {
  const int64_t experts = args.logits.size(1);
  const int64_t choices = args.expert_ids.size(1);
  auto* ids = args.expert_ids.row<int32_t>(row);
  auto* weights = args.expert_weights.row<float>(row);
  std::transform(args.logits.row<float>(row), args.logits.row<float>(row) + experts, logits, Logit);
  Largest(logits, experts, choices, ids);
  // Relative to the largest, which is the first choice.
  const auto relative = [&](int64_t expert) { return std::exp(logits[expert] - logits[ids[0]]); };
  double sum = 0;
  if (args.normalize_weights)
    for (int64_t choice = 0; choice < choices; ++choice) sum += relative(ids[choice]);
  else
    for (int64_t expert = 0; expert < experts; ++expert) sum += relative(expert);
  for (int64_t choice = 0; choice < choices; ++choice)
    weights[choice] = static_cast<float>(relative(ids[choice]) / sum * args.scale);
}

double GroupClaim(const double* claims, int64_t size) {
  double best = kNever;
  double second = kNever;
  for (int64_t i = 0; i < size; ++i) {
    second = std::max(second, std::min(best, claims[i]));
    best = std::max(best, claims[i]);
  }
  return size == 1 ? best : best + second;
}

// Takes the experts of all groups but the best out of the choice. `scratch` is of two doubles for
// every group.
void KeepBestGroups(const ops::RouterArgs& args, double* claims, double* scratch) {
  const int64_t size = args.logits.size(1) / args.groups;
  for (int64_t group = 0; group < args.groups; ++group)
    scratch[group] = GroupClaim(claims + group * size, size);
  auto* kept = reinterpret_cast<int32_t*>(scratch + args.groups);
  Largest(scratch, args.groups, args.groups_kept, kept);
  for (int64_t group = 0; group < args.groups; ++group)
    if (std::find(kept, kept + args.groups_kept, group) == kept + args.groups_kept)
      std::fill_n(claims + group * size, size, kNever);
}

void RouteSigmoid(const ops::RouterArgs& args, int64_t row, double* claims, double* scratch) {
  const int64_t experts = args.logits.size(1);
  const int64_t choices = args.expert_ids.size(1);
  const float* logits = args.logits.row<float>(row);
  auto* ids = args.expert_ids.row<int32_t>(row);
  auto* weights = args.expert_weights.row<float>(row);
  const auto score = [&](int64_t expert) { return 1 / (1 + std::exp(-Logit(logits[expert]))); };
  for (int64_t expert = 0; expert < experts; ++expert)
    claims[expert] = score(expert) + (args.bias.empty() ? 0 : args.bias.data<float>()[expert]);
  KeepBestGroups(args, claims, scratch);
  Largest(claims, experts, choices, ids);
  double sum = 1e-20;
  for (int64_t choice = 0; choice < choices; ++choice) sum += score(ids[choice]);
  const double factor = args.normalize_weights ? args.scale / sum : args.scale;
  for (int64_t choice = 0; choice < choices; ++choice)
    weights[choice] = static_cast<float>(score(ids[choice]) * factor);
}

}  // namespace

int64_t RouterScratchDoubles(int64_t experts) { return 3 * experts; }

void Router(tensor::ExecutionContext& context, const ops::RouterArgs& args) {
  const int64_t experts = args.logits.size(1);
  const ThreadScratch scratch(context, RouterScratchDoubles(experts));
  Threads(context).ParallelFor(args.logits.size(0), [&](int64_t row, int thread) {
    double* values = scratch.of(thread);
    if (args.scoring == spec::ExpertScoring::kSoftmax)
      RouteSoftmax(args, row, values);
    else
      RouteSigmoid(args, row, values, values + experts);
  });
}

}  // namespace longspan::backend::reference
