// The thread of the engine, and the way of all others to it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/counters.h"
#include "engine/engine.h"

namespace longspan::server {

// What others may know of the engine: as of some moment in the last tenth of a second, or, while a
// chunk is being computed, of before it.
struct EngineSnapshot {
  engine::Counters counters;
  int64_t running = 0;
  int64_t queued = 0;
  int64_t page_size = 0;
  int64_t pages = 0;
  int64_t pages_in_use = 0;
  int64_t pages_cached = 0;  // in the prefix tree, of sequences that run too
  int64_t preemptions = 0;
};

// Is told of the end of a turn: once for all that it has made known in that turn.
class TurnListener {
 public:
  virtual ~TurnListener() = default;
  // On the engine's thread.
  virtual void OnTurnEnd() = 0;
};

// Runs an engine between the tasks that others post. An engine is of one thread, and that thread
// must live as long as the stages, which die with it: Run belongs to the program's main thread.
class EngineLoop {
 public:
  using Task = std::function<void(engine::Engine&)>;

  // Runs the task on the engine's thread: at once when that is idle, else when the next result of
  // a stage is there. False once the loop has ended; the task is dropped then. Any thread.
  bool Post(Task task);

  // Works until End was called and nothing is left, or until the engine fails, which is returned;
  // its sequences have ended then.
  base::Status Run(engine::Engine& engine);

  // Run ends when all that was posted before is done. Any thread.
  void End();

  // Calls back when the step at hand is committed, or before the engine goes on to wait for the
  // next one: who wakes another thread then wakes it once for all sequences of a step, and does not
  // have it run beside the commit. On the engine's thread.
  void AtTurnEnd(std::shared_ptr<TurnListener> listener) {
    listeners_.push_back(std::move(listener));
  }

  // Any thread.
  EngineSnapshot snapshot() const;
  // Grows with every turn of the engine.
  int64_t turns() const { return turns_; }

 private:
  std::deque<Task> Take(bool wait);
  void TakeSnapshot(engine::Engine& engine);
  void EndTurn();

  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Task> tasks_;
  bool ending_ = false;
  bool ended_ = false;
  std::atomic<int64_t> turns_{0};
  EngineSnapshot snapshot_;
  // Of the engine's thread.
  base::Clock::Duration snapshot_time_{};
  std::vector<std::shared_ptr<TurnListener>> listeners_;
};

}  // namespace longspan::server
