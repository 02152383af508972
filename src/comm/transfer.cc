#include "comm/transfer.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "comm/deadline.h"

namespace longspan::comm {

class TransferState {
 public:
  bool done() const {
    std::lock_guard lock(mutex_);
    return done_;
  }

  std::chrono::nanoseconds done_at() const {
    std::lock_guard lock(mutex_);
    return done_at_;
  }

  base::Status Wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return status_;
  }

  base::Status WaitFor(std::chrono::nanoseconds timeout) const {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, DeadlineAfter(timeout), [&] { return done_; }))
      return base::DeadlineExceeded("the peer did not take part in the transfer within {} ms",
                                    timeout.count() / 1000000);
    return status_;
  }

  void OnDone(std::function<void(const base::Status&)> function) {
    {
      std::lock_guard lock(mutex_);
      if (!done_) {
        functions_.push_back(std::move(function));
        return;
      }
    }
    function(status_);
  }

  void Complete(base::Status status) {
    std::vector<std::function<void(const base::Status&)>> functions;
    {
      std::lock_guard lock(mutex_);
      LONGSPAN_CHECK(!done_, "a transfer ends once");
      status_ = std::move(status);
      done_at_ = base::SteadyClock().Now();
      done_ = true;
      functions.swap(functions_);
    }
    changed_.notify_all();
    for (const auto& function : functions) function(status_);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::chrono::nanoseconds done_at_{0};
  base::Status status_;  // constant once done_
  std::vector<std::function<void(const base::Status&)>> functions_;
};

Transfer Transfer::Done(base::Status status) {
  TransferSource source;
  Transfer transfer = source.transfer();
  source.Complete(std::move(status));
  return transfer;
}

bool Transfer::done() const { return state_ == nullptr || state_->done(); }

std::chrono::nanoseconds Transfer::done_at() const {
  return state_ == nullptr ? std::chrono::nanoseconds(0) : state_->done_at();
}

base::Status Transfer::Wait() const {
  return state_ == nullptr ? base::OkStatus() : state_->Wait();
}

base::Status Transfer::WaitFor(std::chrono::nanoseconds timeout) const {
  return state_ == nullptr ? base::OkStatus() : state_->WaitFor(timeout);
}

void Transfer::OnDone(std::function<void(const base::Status&)> function) const {
  if (state_ == nullptr)
    function(base::OkStatus());
  else
    state_->OnDone(std::move(function));
}

TransferSource::TransferSource() : state_(std::make_shared<TransferState>()) {}

TransferSource::~TransferSource() {
  LONGSPAN_CHECK(state_ == nullptr, "a transfer was forgotten: its waiters would sleep for ever");
}

void TransferSource::Complete(base::Status status) {
  LONGSPAN_CHECK(state_ != nullptr, "a transfer ends once");
  std::exchange(state_, nullptr)->Complete(std::move(status));
}

}  // namespace longspan::comm
