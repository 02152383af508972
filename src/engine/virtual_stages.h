// A pipeline that only counts time, under the real scheduler: for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "engine/plan_window.h"
#include "engine/scheduler.h"

namespace longspan::engine::testing {

// Drives a Scheduler as the engine does: P + 1 plans in flight (plan_window.h), a plan's tokens
// committed when the last stage is done. Every stage takes `stage_seconds` for a plan; the first
// one waits for the last one where a row's token is not sampled yet. Sequences are given by their
// lengths.
class VirtualStages {
 public:
  struct Setup {
    SchedulerOptions scheduler;
    int stages = 1;  // of the pipeline; scheduler.stages says how many groups decodes are split in
    int64_t pages = 0;
    int page_size = 64;
    int64_t context_length = 1 << 20;
    std::function<double(const plan::StepPlan&)> stage_seconds;
  };
  struct Outcome {
    double submitted = 0;
    double first_token = -1;
    double finish = -1;
    int64_t tokens = 0;
  };

  explicit VirtualStages(Setup setup)
      : setup_(std::move(setup)),
        scheduler_(setup_.scheduler, setup_.pages, setup_.page_size),
        free_(static_cast<size_t>(setup_.stages), 0.0) {}

  // To be called in the order of arrival. Prompts have no tokens in common.
  int64_t Submit(double at, int64_t prompt, int64_t max_tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = {++last_id_};
    for (int64_t i = 0; i < prompt; ++i)
      sequence->request.prompt.push_back(
          static_cast<int32_t>((static_cast<uint32_t>(last_id_) * 2654435769u + i) & 0x7fffffffu));
    sequence->request.max_tokens = max_tokens;
    sequence->submitted = Time(at);
    outcomes_[last_id_].submitted = at;
    prompts_[last_id_] = prompt;
    arrivals_.push_back(std::move(sequence));
    return last_id_;
  }

  // Until all has ended, or to a time.
  void Run(double until = std::numeric_limits<double>::infinity()) {
    while (true) {
      const double arrival = arrivals_.empty() ? kNever : base::Seconds(arrivals_[0]->submitted);
      const double commit = in_flight_.empty() ? kNever : in_flight_.front().done;
      if (std::min(arrival, commit) > until || std::min(arrival, commit) == kNever) return;
      now_ = std::min(arrival, commit);
      if (arrival <= commit) {
        Arrive();
      } else {
        Commit();
      }
      Fill();
      LONGSPAN_CHECK(!in_flight_.empty() || scheduler_.idle(), "nothing can go on");
    }
  }

  const Outcome& outcome(int64_t id) const { return outcomes_.at(id); }
  int64_t prompt(int64_t id) const { return prompts_.at(id); }  // its length
  const Scheduler& scheduler() const { return scheduler_; }
  double now() const { return now_; }
  // Stage times of the plans, in order, and when they were made.
  const std::vector<double>& plan_seconds() const { return plan_seconds_; }
  const std::vector<double>& plan_times() const { return plan_times_; }
  const std::vector<plan::StepPlan>& plans() const { return plans_; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  struct InFlight {
    plan::StepPlan plan;
    double stage_seconds = 0;
    double done = 0;
  };

  static base::Clock::Duration Time(double seconds) {
    return base::Clock::Duration(std::llround(seconds * 1e9));
  }

  bool MayFill() const {
    std::vector<PlanSize> uncommitted;
    for (const InFlight& step : in_flight_)
      uncommitted.push_back(SizeOf(step.plan, scheduler_.step_time()));
    return MayFollow(uncommitted, setup_.stages + 1);
  }

  void Fill() {
    while (MayFill()) {
      auto plan = scheduler_.Next(Time(now_));
      if (!plan) return;
      const double seconds = setup_.stage_seconds(*plan);
      double ready = now_;
      for (const plan::Slice& slice : plan->slices)
        for (const plan::TokenSource& token : slice.tokens)
          if (!token.is_literal()) ready = std::max(ready, done_.at(token.plan.value));
      for (double& free : free_) ready = free = std::max(ready, free) + seconds;
      done_[plan->number.value] = ready;
      plan_seconds_.push_back(seconds);
      plan_times_.push_back(now_);
      plans_.push_back(*plan);
      in_flight_.push_back({std::move(*plan), seconds, ready});
    }
  }

  // All that come at this instant.
  void Arrive() {
    while (!arrivals_.empty() && base::Seconds(arrivals_.front()->submitted) <= now_) {
      const RequestLimits limits = {.context_length = setup_.context_length};
      LONGSPAN_CHECK(scheduler_.Enqueue(std::move(arrivals_.front()), limits).ok(), "full");
      arrivals_.pop_front();
    }
  }

  void Commit() {
    const InFlight step = std::move(in_flight_.front());
    in_flight_.pop_front();
    scheduler_.OnComputed(step.plan);
    for (const plan::LogitsRow& row : step.plan.logits_rows)
      CommitToken(step.plan.slices[row.slice].sequence);
    scheduler_.OnMeasured(step.plan, step.stage_seconds);
  }

  void CommitToken(plan::SequenceId id) {
    Sequence& sequence = *scheduler_.Find(id);
    Outcome& outcome = outcomes_[id.value];
    sequence.pending.pop_front();
    sequence.output.push_back(static_cast<int32_t>(sequence.output.size()));
    if (outcome.tokens++ == 0) outcome.first_token = now_;
    if (outcome.tokens < sequence.output_limit) return;
    outcome.finish = now_;
    scheduler_.Retire(id);
  }

  Setup setup_;
  Scheduler scheduler_;
  std::deque<std::unique_ptr<Sequence>> arrivals_;
  std::deque<InFlight> in_flight_;
  std::vector<double> free_;  // when each stage has done all plans so far
  std::map<uint64_t, double> done_;
  std::map<int64_t, Outcome> outcomes_;
  std::map<int64_t, int64_t> prompts_;
  std::vector<double> plan_seconds_;
  std::vector<double> plan_times_;
  std::vector<plan::StepPlan> plans_;
  double now_ = 0;
  int64_t last_id_ = 0;
};

}  // namespace longspan::engine::testing
