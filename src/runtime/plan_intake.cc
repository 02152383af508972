#include "runtime/plan_intake.h"

#include <new>

#include "base/clock.h"
#include "runtime/out_of_memory.h"
#include "tensor/thread_pool.h"

namespace longspan::runtime {
namespace {

int64_t Now() { return base::SteadyClock().Now().count(); }

}  // namespace

PlanIntake::PlanIntake(const RankConfig& config, int64_t pages, const RankLinks& links,
                       ResidualSlots& slots)
    : config_(config),
      links_(links),
      slots_(slots),
      source_(config, links),
      pages_(config.page_size, pages, config.context_share(), config.page_share()),
      order_(config.loops()),
      thread_([this] { Loop(); }) {}

PlanIntake::~PlanIntake() {
  slots_.Cancel();
  links_.Close();
  thread_.join();
}

base::Result<PreparedStep> PlanIntake::Next() {
  const int64_t awaited = Now();
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [this] { return !steps_.empty(); });
  base::Result<PreparedStep> step = std::move(steps_.front());
  steps_.pop_front();
  if (step.ok()) step->awaited = awaited;
  return step;
}

void PlanIntake::Loop() {
  // Started by a compute thread that may be pinned: this one is to work beside it, not instead of
  // it.
  tensor::UnpinThisThread();
  while (true) {
    base::Result<PreparedStep> step = PrepareSafely();
    const bool ended = !step.ok();
    const bool leader_gone = ended && step.status().code() == base::StatusCode::kUnavailable;
    Push(std::move(step));
    // What is being computed is of no use any more: whatever it waits for, it shall end.
    if (leader_gone) links_.Close();
    if (ended) return;
  }
}

base::Result<PreparedStep> PlanIntake::PrepareSafely() {
  try {
    return Prepare();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

base::Result<PreparedStep> PlanIntake::Prepare() {
  if (due_.empty()) LONGSPAN_RETURN_IF_ERROR(TakePlan());
  const plan::PlanLoop due = due_.front();
  due_.pop_front();
  PreparedStep step{.loop = due.loop};
  step.work = unfinished_[due.plan.value - unfinished_.front()->plan.number.value];
  if (due.loop == config_.loops() - 1) unfinished_.pop_front();
  step.intake = step.work->intake;
  LONGSPAN_ASSIGN_OR_RETURN(step.slot, slots_.Acquire());
  if (!config_.embeds(due.loop)) {
    step.received = links_.previous->Receive(
        ResidualMessage(due.plan, due.loop, config_.loops()),
        slots_.LinkBytes(*links_.previous, step.slot, step.work->tables.rows));
  }
  step.intake.posted = Now();
  return step;
}

base::Status PlanIntake::TakePlan() {
  LONGSPAN_ASSIGN_OR_RETURN(const auto frame, source_.Next());
  auto work = std::make_shared<PlanWork>();
  work->intake.taken = Now();
  LONGSPAN_ASSIGN_OR_RETURN(work->plan, DecodePlan(frame));
  if (work->plan.epoch != config_.epoch)
    return base::Unavailable("a plan of epoch {} came in epoch {}", work->plan.epoch.value,
                             config_.epoch.value);
  if (work->plan.number.value != last_number_.value + 1)
    return base::DataLoss("plan {} came after plan {}", work->plan.number.value,
                          last_number_.value);
  last_number_ = work->plan.number;
  LONGSPAN_ASSIGN_OR_RETURN(work->tables, pages_.Apply(work->plan));
  if (work->plan.rows() > config_.max_rows)
    return base::DataLoss("a plan has {} rows, the most is {}", work->plan.rows(),
                          config_.max_rows);
  work->intake.tables = Now();
  for (const plan::PlanLoop& loop : order_.Add(work->plan.number, work->plan.ends_group))
    due_.push_back(loop);
  unfinished_.push_back(std::move(work));
  return base::OkStatus();
}

void PlanIntake::Push(base::Result<PreparedStep> step) {
  {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(step));
  }
  ready_.notify_one();
}

}  // namespace longspan::runtime
