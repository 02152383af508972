// A handle of something that goes on while its caller does other work.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/status.h"

namespace longspan::comm {

class TransferState;

// The end of one asynchronous send or receive. A copyable handle: copies stand for the same
// transfer and may outlive the link. A default-constructed one is done and ok. Thread-safe as a
// shared_ptr is: copies in different threads need no lock.
class Transfer {
 public:
  Transfer() = default;

  // A transfer that ended before it began.
  static Transfer Done(base::Status status);

  // True once the transfer has ended, well or not: its buffer is the caller's again.
  bool done() const;
  // When it ended, on base::SteadyClock(). 0 before that, and for a default-constructed one.
  std::chrono::nanoseconds done_at() const;
  // Sleeps until the transfer has ended and tells how.
  base::Status Wait() const;
  // The same, but DeadlineExceeded after `timeout`; the transfer then still goes on, and with it
  // the use of the buffer.
  base::Status WaitFor(std::chrono::nanoseconds timeout) const;
  // Calls `function` once when the transfer has ended: now, if it has, else on the thread that ends
  // it. The function must be short, must not wait, and must not call the link.
  void OnDone(std::function<void(const base::Status&)> function) const;

 private:
  friend class TransferSource;
  explicit Transfer(std::shared_ptr<TransferState> state) : state_(std::move(state)) {}

  std::shared_ptr<TransferState> state_;
};

// The other side of a Transfer, for those who write transports. Move-only; completed exactly once
// (a programmer's mistake otherwise, also when it is destroyed without).
class TransferSource {
 public:
  TransferSource();
  TransferSource(TransferSource&&) noexcept = default;
  TransferSource& operator=(TransferSource&&) noexcept = default;
  ~TransferSource();

  Transfer transfer() const { return Transfer(state_); }
  // Ends the transfer: wakes the waiters, runs the OnDone functions. Call it without locks held.
  void Complete(base::Status status);

 private:
  std::shared_ptr<TransferState> state_;
};

}  // namespace longspan::comm
