// Gives plans to the ranks, in groups where the stages are looped.
#pragma once

#include <optional>

#include "plan/pipeline_schedule.h"
#include "runtime/stage_group.h"

namespace longspan::engine {

// With looped stages a plan says whether its group ends with it, so one plan is held back until it
// is known whether another one joins. A group that is left open ends when the ranks are about to
// run out of work; so whatever was sent can be computed to its end without a plan that may never
// come. Without loops every plan is a group and is sent at once.
class PlanSender {
 public:
  explicit PlanSender(runtime::StageGroup& ranks);

  // The next plan of the log.
  base::Status Add(const plan::StepPlan& plan);

  // No plan follows now. `unfinished`: plans whose last loop has not been reported, the one held
  // back included.
  base::Status Pause(int unfinished);

 private:
  base::Status SendHeld(bool ends_group);

  runtime::StageGroup& ranks_;
  plan::OpenGroup group_;
  std::optional<plan::StepPlan> held_;
};

}  // namespace longspan::engine
