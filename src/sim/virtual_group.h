// A group of ranks that are not there, for the engine.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "runtime/stage_group.h"
#include "sim/virtual_clock.h"
#include "sim/virtual_pipeline.h"

namespace longspan::sim {

// Takes plans and reports results at the times of a VirtualPipeline, so that the engine runs as it
// does over real ranks. A row that samples gets token 0. Next() advances the clock to the instant
// of the result that it returns; plans come at the instant that the clock shows. All lanes of a
// stage report together.
class VirtualGroup : public runtime::StageGroup {
 public:
  // `info`: pages and ranks as they would have been agreed on. `clock` outlives the group.
  VirtualGroup(const spec::Mesh& mesh, int loops, runtime::GroupInfo info, PipelineTimes times,
               VirtualClock& clock);

  base::Status Submit(const plan::StepPlan& plan) override;
  // Internal where nothing is in flight: nobody would ever report.
  base::Result<plan::StepResult> Next() override;

 private:
  VirtualPipeline pipeline_;
  VirtualClock& clock_;
  std::map<uint64_t, plan::StepPlan> plans_;
  // By the instant of their end, then in the order of Submit and of ranks.
  std::multimap<Time, plan::StepResult> results_;
};

}  // namespace longspan::sim
