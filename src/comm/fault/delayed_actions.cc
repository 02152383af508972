#include "comm/fault/delayed_actions.h"

#include <utility>

#include "comm/deadline.h"

namespace longspan::comm {

bool DelayedActions::Post(std::function<void()> action) {
  std::lock_guard lock(mutex_);
  if (finished_) return false;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  actions_.push_back({DeadlineAfter(delay_), std::move(action)});
  changed_.notify_one();
  return true;
}

void DelayedActions::Finish() {
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_one();
  }
  std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void DelayedActions::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return finished_ || !actions_.empty(); });
    if (actions_.empty()) return;
    changed_.wait_until(lock, actions_.front().due, [&] { return finished_; });
    std::function<void()> run = std::move(actions_.front().run);
    actions_.pop_front();
    lock.unlock();
    run();
    run = nullptr;  // frees what it holds without the lock
    lock.lock();
  }
}

}  // namespace longspan::comm
