#include "server/engine_loop.h"

#include <utility>

namespace longspan::server {
namespace {

constexpr base::Clock::Duration kSnapshotEvery = std::chrono::milliseconds(100);

}  // namespace

bool EngineLoop::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    tasks_.push_back(std::move(task));
  }
  posted_.notify_one();
  return true;
}

void EngineLoop::End() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  posted_.notify_one();
}

std::deque<EngineLoop::Task> EngineLoop::Take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) posted_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
  if (wait && tasks_.empty()) ended_ = true;
  return std::exchange(tasks_, {});
}

base::Status EngineLoop::Run(engine::Engine& engine) {
  TakeSnapshot(engine);
  base::Status status;
  while (status.ok()) {
    const bool idle = engine.idle();
    if (idle) TakeSnapshot(engine);
    std::deque<Task> tasks = Take(/*wait=*/idle);
    if (idle && tasks.empty()) return status;
    for (Task& task : tasks) task(engine);
    EndTurn();
    status = engine.Advance();
    ++turns_;
    EndTurn();
    if (base::SteadyClock().Now() - snapshot_time_ >= kSnapshotEvery) TakeSnapshot(engine);
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  // Whoever waits for these is told by the engine that it has failed.
  for (Task& task : Take(/*wait=*/false)) task(engine);
  EndTurn();
  TakeSnapshot(engine);
  return status;
}

void EngineLoop::EndTurn() {
  for (const auto& listener : listeners_) listener->OnTurnEnd();
  listeners_.clear();
}

void EngineLoop::TakeSnapshot(engine::Engine& engine) {
  EngineSnapshot snapshot{.counters = engine.counters(),
                          .running = engine.running(),
                          .queued = engine.queued(),
                          .page_size = engine.group_info().page_size,
                          .pages = engine.group_info().pages,
                          .pages_in_use = engine.pages().in_use(),
                          .pages_cached = engine.pages().tree().cached_pages(),
                          .preemptions = engine.preemptions()};
  snapshot_time_ = base::SteadyClock().Now();
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(snapshot);
}

EngineSnapshot EngineLoop::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

}  // namespace longspan::server
