#include "sim/virtual_group.h"

#include <utility>

namespace longspan::sim {
namespace {

std::vector<plan::RowResult> SampledRows(const plan::StepPlan& plan) {
  std::vector<plan::RowResult> rows;
  for (size_t slot = 0; slot < plan.logits_rows.size(); ++slot)
    rows.push_back(
        {.slot = static_cast<uint32_t>(slot), .token = plan.logits_rows[slot].sample ? 0 : -1});
  return rows;
}

}  // namespace

VirtualGroup::VirtualGroup(const spec::Mesh& mesh, int loops, runtime::GroupInfo info,
                           PipelineTimes times, VirtualClock& clock)
    : StageGroup(mesh, mesh.pp == 1 ? 1 : loops),
      pipeline_(mesh.pp, loops, std::move(times)),
      clock_(clock) {
  info_ = std::move(info);
}

base::Status VirtualGroup::Submit(const plan::StepPlan& plan) {
  plans_.emplace(plan.number.value, plan);
  for (StageWork& work : pipeline_.Add(plan, clock_.Now().count())) {
    const plan::StepPlan& done = plans_.at(work.plan.value);
    const bool last = work.stage + 1 == mesh_.pp;
    for (int lane = 0; lane < mesh_.stage_ranks(); ++lane) {
      plan::StepResult result{.plan = done.number,
                              .epoch = done.epoch,
                              .rank = mesh_.rank_of(work.stage, lane),
                              .timing = work.timing};
      if (result.rank == mesh_.reporting_rank()) result.rows = SampledRows(done);
      results_.emplace(work.timing.end, std::move(result));
    }
    if (last) plans_.erase(work.plan.value);
  }
  return base::OkStatus();
}

base::Result<plan::StepResult> VirtualGroup::Next() {
  if (results_.empty())
    return base::Internal("the engine waits for results and no stage has anything to do");
  auto node = results_.extract(results_.begin());
  if (base::Clock::Duration(node.key()) > clock_.Now())
    clock_.AdvanceTo(base::Clock::Duration(node.key()));
  return std::move(node.mapped());
}

}  // namespace longspan::sim
