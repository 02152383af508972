#include "plan/pipeline_schedule.h"

#include <algorithm>

namespace longspan::plan {

std::vector<PlanLoop> LoopOrder::Add(PlanNumber plan, bool ends_group) {
  std::vector<PlanLoop> order = {{plan, 0}};
  group_.push_back(plan);
  if (!ends_group) return order;
  for (int loop = 1; loop < loops_; ++loop)
    for (const PlanNumber member : group_) order.push_back({member, loop});
  group_.clear();
  return order;
}

bool OpenGroup::Accepts(const StepPlan& plan) const {
  if (full()) return false;
  if (count_ == 0) return true;
  const auto from_group = [&](const TokenSource& token) {
    return !token.is_literal() && !(token.plan < first_);
  };
  return std::none_of(plan.slices.begin(), plan.slices.end(), [&](const Slice& slice) {
    return std::any_of(slice.tokens.begin(), slice.tokens.end(), from_group);
  });
}

void OpenGroup::Add(const StepPlan& plan) {
  if (count_++ == 0) first_ = plan.number;
}

std::vector<bool> FullGroups(int plans, int group_size) {
  std::vector<bool> ends_group(static_cast<size_t>(plans));
  for (int i = 0; i < plans; ++i) ends_group[i] = (i + 1) % group_size == 0 || i + 1 == plans;
  return ends_group;
}

double PipelineMakespan(const std::vector<bool>& ends_group, int ranks, int loops,
                        const LoopSeconds& seconds) {
  LoopOrder order(loops);
  std::vector<double> rank_end(static_cast<size_t>(ranks), 0.0);
  // When a plan has left the last rank in its latest loop.
  std::vector<double> plan_end(ends_group.size(), 0.0);
  for (size_t added = 0; added < ends_group.size(); ++added) {
    for (const PlanLoop& item : order.Add({added}, ends_group[added])) {
      double& passed = plan_end[item.plan.value];
      for (int rank = 0; rank < ranks; ++rank) {
        passed = std::max(passed, rank_end[rank]) + seconds(item.plan.value, rank, item.loop);
        rank_end[rank] = passed;
      }
    }
  }
  return rank_end.back();
}

}  // namespace longspan::plan
