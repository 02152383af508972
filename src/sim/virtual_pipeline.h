// When the ranks of a pipeline work on what, without the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "plan/pipeline_schedule.h"
#include "plan/step_plan.h"
#include "plan/step_result.h"

namespace longspan::sim {

// Nanoseconds since the beginning.
using Time = int64_t;

// How long things take; none is below 0.
struct PipelineTimes {
  // Of one plan in one loop on one stage.
  std::function<double(const plan::StepPlan& plan, int stage, int loop)> compute_s;
  // Of its residual stream, from a stage to the next one (of the last, to the first): how long it
  // keeps the link busy, and how long the last byte is on its way.
  std::function<double(const plan::StepPlan& plan, int stage)> transfer_s;
  std::function<double(int stage)> latency_s;
};

// What a stage did with a plan, in all its loops.
struct StageWork {
  plan::PlanNumber plan;
  int stage = 0;
  plan::StageTiming timing;
};

// Stages that take plans in LoopOrder and wait for nothing but their input: the stage before, a
// sampled token, and a plan that has come. Residual streams travel while stages compute, one after
// the other over each link. All lanes of a stage do the same, so one stands for all.
class VirtualPipeline {
 public:
  VirtualPipeline(int stages, int loops, PipelineTimes times);

  // The next plan of the log, that comes at `now`. Returns what can be said of it and of plans
  // before it now, in the order of their ends; every stage of every plan comes once.
  std::vector<StageWork> Add(const plan::StepPlan& plan, Time now);

 private:
  struct Pending {
    plan::StepPlan plan;
    Time came = 0;
    std::vector<plan::StageTiming> timings;  // by stage
  };

  void Compute(const plan::PlanLoop& item, std::vector<StageWork>& done);
  void ComputeStage(Pending& pending, int stage, int loop);
  Time TokensReady(const plan::StepPlan& plan) const;

  int stages_;
  int loops_;
  PipelineTimes times_;
  plan::LoopOrder order_;
  std::map<uint64_t, Pending> pending_;
  std::map<uint64_t, Time> sampled_;  // when the tokens of a plan are at the first stage
  std::vector<Time> free_;            // when a stage has done all that it was given
  std::vector<Time> link_free_;       // behind a stage
  Time arrival_ = 0;                  // of the item at hand at the next stage
  std::map<uint64_t, Time> back_;     // of plans that come back to the first stage for a loop
};

}  // namespace longspan::sim
