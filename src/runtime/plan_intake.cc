#include "runtime/plan_intake.h"

#include <new>

#include "base/clock.h"
#include "runtime/beat.h"
#include "runtime/out_of_memory.h"
#include "tensor/thread_pool.h"

namespace longspan::runtime {

PlanIntake::PlanIntake(const RankConfig& config, int64_t pages, const RankLinks& links,
                       ResidualSlots& slots)
    : config_(config),
      links_(links),
      slots_(slots),
      pages_(config.page_size, pages),
      thread_([this] { Loop(); }) {}

PlanIntake::~PlanIntake() {
  slots_.Cancel();
  links_.Close();
  thread_.join();
}

base::Result<PreparedStep> PlanIntake::Next() {
  const int64_t awaited = base::SteadyClock().Now().count();
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
  LONGSPAN_ASSIGN_OR_RETURN(const auto frame, ReceiveFromLeader(*links_.leader, config_));
  const auto now = [] { return base::SteadyClock().Now().count(); };
  PreparedStep step;
  step.intake.taken = now();
  LONGSPAN_ASSIGN_OR_RETURN(step.plan, DecodePlan(frame));
  if (step.plan.epoch != config_.epoch)
    return base::Unavailable("a plan of epoch {} came in epoch {}", step.plan.epoch.value,
                             config_.epoch.value);
  if (step.plan.number.value != last_number_.value + 1)
    return base::DataLoss("plan {} came after plan {}", step.plan.number.value, last_number_.value);
  last_number_ = step.plan.number;
  LONGSPAN_ASSIGN_OR_RETURN(step.tables, pages_.Apply(step.plan));
  if (step.tables.rows > config_.max_rows)
    return base::DataLoss("a plan has {} rows, the most is {}", step.tables.rows, config_.max_rows);
  step.intake.tables = now();
  LONGSPAN_ASSIGN_OR_RETURN(step.slot, slots_.Acquire());
  if (links_.previous != nullptr) {
    const tensor::View residual = slots_.Rows(step.slot, step.tables.rows);
    step.received = links_.previous->Receive(
        step.plan.number.value,
        std::span(static_cast<std::byte*>(residual.raw()), static_cast<size_t>(residual.bytes())));
  }
  step.intake.posted = now();
  return step;
}

void PlanIntake::Push(base::Result<PreparedStep> step) {
  {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(step));
  }
  ready_.notify_one();
}

}  // namespace longspan::runtime
