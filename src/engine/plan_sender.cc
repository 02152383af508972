#include "engine/plan_sender.h"

namespace longspan::engine {

PlanSender::PlanSender(runtime::StageGroup& ranks)
    : ranks_(ranks), group_(plan::GroupSize(ranks.stages(), ranks.loops())) {}

base::Status PlanSender::Add(const plan::StepPlan& plan) {
  if (ranks_.loops() == 1) return ranks_.Submit(plan);
  if (held_) LONGSPAN_RETURN_IF_ERROR(SendHeld(!group_.Accepts(plan)));
  group_.Add(plan);
  held_ = plan;
  return group_.full() ? SendHeld(true) : base::OkStatus();
}

base::Status PlanSender::Pause(int unfinished) {
  // While ranks have more than a full group to do, there is time for others to join.
  if (!held_ || unfinished - 1 > ranks_.stages()) return base::OkStatus();
  return SendHeld(true);
}

base::Status PlanSender::SendHeld(bool ends_group) {
  held_->ends_group = ends_group;
  if (ends_group) group_.End();
  base::Status status = ranks_.Submit(*held_);
  held_.reset();
  return status;
}

}  // namespace longspan::engine
