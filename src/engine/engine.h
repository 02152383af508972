// The leader: takes requests, gives plans to the stages, and commits what they return.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/counters.h"
#include "engine/output.h"
#include "engine/plan_sender.h"
#include "engine/plan_window.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "runtime/stage_group.h"

namespace longspan::engine {

struct EngineOptions {
  SchedulerOptions scheduler;
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  std::vector<int32_t> end_tokens;
  // How long every stage took for a step, as plans are to be made by it. Where empty: as its ranks
  // have measured (StageSeconds). For ranks whose times are modelled and may be late on busy cores.
  std::function<std::vector<double>(const StepRecord&)> stage_seconds;
  // Plans that the last stage has not reported, at most; at least 1. Where nothing: as many as keep
  // all stages busy (plan_window.h). For simulations of engines that have a slot for each stage.
  std::optional<int64_t> most_in_flight;
  // Called with every computed step, before the step observer.
  std::function<void(const StepRecord&)> trace;
  // Called at the end with what steps have cost, where that is worth keeping.
  std::function<void(const plan::PipelineCost&)> costs_learnt;
  // Replaces a group that is lost by one of the same capacity; what was running is computed again.
  // So often at most without any progress in between, then the loss ends all sequences.
  runtime::StageGroupFactory restart;
  int most_restarts = 0;
};

// All policy is here and in the scheduler; ranks only apply plans. One thread calls everything.
class Engine {
 public:
  Engine(std::unique_ptr<runtime::StageGroup> group, EngineOptions options,
         const base::Clock& clock = base::SteadyClock());

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request; `sink` hears of it until OnFinish. Refuses what can never run (CheckRequest)
  // and what finds the queue full.
  base::Result<plan::SequenceId> Submit(Request request, OutputSink* sink);

  // Ends a sequence wherever it is; its sink gets OnFinish(kAbort). Unknown ones (finished already)
  // are ignored.
  void Abort(plan::SequenceId id);

  // Called with every computed step, when all stages have reported it.
  void set_step_observer(std::function<void(const StepRecord&)> observer) {
    observer_ = std::move(observer);
  }

  // Works until no sequence is left. A group that is lost is replaced and what was running computed
  // again, without repeating to a sink what it has got. On an error of the group that cannot be
  // mended so all sequences end with kAbort and it is returned.
  base::Status RunUntilIdle();

  // One turn of that loop: gives the stages what they can take and commits the next result that
  // they report, for which it waits, at most as long as a chunk takes. For callers that submit and
  // abort between turns. Does nothing where `idle`; on an error all sequences have ended.
  base::Status Advance();
  // Nothing waits, runs or is in flight.
  bool idle() const { return scheduler_.idle() && in_flight_.empty(); }

  // Forgets the cached prefixes that no sequence uses, and returns their pages.
  int64_t FlushCache() { return scheduler_.FlushCache(); }
  // Of the prompt of a sequence that runs, known from its first OnPrefill on; 0 for others.
  int64_t CachedTokens(plan::SequenceId id);
  // Since its Submit; 0 for sequences that have ended.
  double SecondsSinceSubmit(plan::SequenceId id);
  int64_t running() const { return scheduler_.running(); }
  int64_t queued() const { return scheduler_.queued(); }

  // What steps are predicted to take.
  const plan::PipelineFit& step_time() const { return scheduler_.step_time(); }
  const RequestLimits& limits() const { return limits_; }
  const runtime::GroupInfo& group_info() const { return info_; }
  const PageLedger& pages() const { return scheduler_.pages(); }
  Counters counters() const { return counters_.Read(Now()); }
  int64_t preemptions() const { return scheduler_.preemptions(); }

 private:
  // A plan that some stage has not reported yet.
  struct InFlight {
    plan::StepPlan plan;
    StepRecord record;
    std::vector<bool> has_reported;  // by stage
    int reported = 0;
    plan::StepResult result;  // of the last stage, with the hidden rows of all
    bool committed = false;
  };

  // Plans that the last stage has not reported, those held back included.
  std::vector<PlanSize> Uncommitted() const;
  bool MayAddPlan() const;
  base::Status FillWindow();
  base::Status TakeResult();
  base::Status Recover(base::Status cause);
  base::Status Restart(const base::Status& cause);
  void DropGroup();
  void Commit(const plan::StepPlan& plan, plan::StepResult result);
  void CommitHidden(const plan::StepPlan& plan, std::vector<plan::HiddenRow> rows);
  void CommitRow(const plan::StepPlan& plan, plan::RowResult row);
  void CommitToken(Sequence& sequence, plan::RowResult row);
  void CommitPrefill(const plan::StepPlan& plan);
  void Finish(Sequence& sequence, FinishReason reason);
  void ReportComputed();
  double SecondsSince(base::Clock::Duration begin) const;
  double QueueSeconds(const Sequence& sequence) const;
  int64_t Now() const { return clock_.Now().count(); }

  std::unique_ptr<runtime::StageGroup> group_;  // null while it is to be replaced
  std::optional<PlanSender> sender_;            // of the group: what it holds back ends with it
  EngineOptions options_;
  const base::Clock& clock_;
  RequestLimits limits_;
  Scheduler scheduler_;
  spdlog::logger& log_;
  runtime::GroupInfo info_;
  plan::Epoch epoch_;           // of the group
  bool group_is_warm_ = false;  // it has computed a step
  base::Status lost_;           // why the group is gone, when nothing was running
  int restarts_ = 0;            // since a sequence has got further than ever before
  base::Status failure_;        // of the group; nothing works after it
  std::deque<InFlight> in_flight_;
  int64_t last_sequence_ = 0;
  CounterBook counters_;
  std::function<void(const StepRecord&)> observer_;
};

}  // namespace longspan::engine
