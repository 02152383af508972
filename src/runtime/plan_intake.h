// Takes plans from the leader ahead of their turn.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "plan/pipeline_schedule.h"
#include "runtime/plan_source.h"
#include "runtime/rank_config.h"
#include "runtime/rank_links.h"
#include "runtime/stage.h"

namespace longspan::runtime {

// A thread that reads plans, builds their tables and posts the receives of their input while
// earlier plans still compute; as many steps ahead as the residual ring has buffers.
class PlanIntake {
 public:
  // `links` and `slots` must outlive it. Starts the thread.
  PlanIntake(const RankConfig& config, int64_t pages, const RankLinks& links, ResidualSlots& slots);
  // Ends the thread: closes the links.
  ~PlanIntake();
  PlanIntake(const PlanIntake&) = delete;
  PlanIntake& operator=(const PlanIntake&) = delete;

  // The next loop of a plan, in order (plan/pipeline_schedule.h). Unavailable when the leader has
  // closed its channel: the regular end.
  base::Result<PreparedStep> Next();

 private:
  void Loop();
  base::Result<PreparedStep> PrepareSafely();
  base::Result<PreparedStep> Prepare();
  base::Status TakePlan();
  void Push(base::Result<PreparedStep> step);

  RankConfig config_;
  const RankLinks& links_;
  ResidualSlots& slots_;
  PlanSource source_;
  SequencePages pages_;
  plan::PlanNumber last_number_;
  plan::LoopOrder order_;
  std::deque<plan::PlanLoop> due_;                    // in order, as far as known
  std::deque<std::shared_ptr<PlanWork>> unfinished_;  // plans that have loops due, by number

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<base::Result<PreparedStep>> steps_;
  std::thread thread_;
};

}  // namespace longspan::runtime
