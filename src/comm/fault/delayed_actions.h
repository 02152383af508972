// Doing things later, in order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace longspan::comm {

// Runs actions in order on a thread of its own, each a fixed time after it was posted. The thread
// starts with the first action. Thread-safe; actions may post.
class DelayedActions {
 public:
  explicit DelayedActions(std::chrono::nanoseconds delay) : delay_(delay) {}
  DelayedActions(const DelayedActions&) = delete;
  ~DelayedActions() { Finish(); }

  // False, and the action is dropped, after Finish.
  bool Post(std::function<void()> action);
  // Runs what is left without delay and ends the thread. Not from an action. Idempotent.
  void Finish();

 private:
  struct Action {
    std::chrono::steady_clock::time_point due;
    std::function<void()> run;
  };
  void Run();

  const std::chrono::nanoseconds delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Action> actions_;
  bool finished_ = false;
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace longspan::comm
