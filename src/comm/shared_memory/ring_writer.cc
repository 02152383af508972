#include "comm/shared_memory/ring_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/closing.h"
#include "comm/wire.h"

namespace longspan::comm {

RingWriter::RingWriter(SharedMemory ring, FrameWriter& frames)
    : ring_(std::move(ring)), frames_(frames), thread_([this] { Run(); }) {}

RingWriter::~RingWriter() {
  Stop(ClosedHere());
  thread_.join();
}

void RingWriter::Push(Message message) {
  std::unique_lock lock(mutex_);
  if (stopped_.ok()) {
    queue_.push_back(std::move(message));
    work_.notify_one();
    return;
  }
  const base::Status status = stopped_;
  lock.unlock();
  message.done(status);
}

base::Status RingWriter::TakeFreed(uint64_t size) {
  std::lock_guard lock(mutex_);
  if (size == 0 || size > written_ - freed_)
    return BrokenWire("it frees memory that is not in use");
  freed_ += size;
  work_.notify_one();
  return base::OkStatus();
}

void RingWriter::Stop(const base::Status& status) {
  std::deque<Message> ended;
  base::Status stopped;
  {
    std::lock_guard lock(mutex_);
    if (stopped_.ok()) stopped_ = status;
    stopped = stopped_;
    // What is being copied stays for the thread to end.
    const auto first = queue_.begin() + (copying_ ? 1 : 0);
    std::move(first, queue_.end(), std::back_inserter(ended));
    queue_.erase(first, queue_.end());
    work_.notify_one();
  }
  for (const Message& message : ended) message.done(stopped);
}

void RingWriter::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] {
      if (!stopped_.ok()) return true;
      return !queue_.empty() && ring_.bytes().size() - (written_ - freed_) >= NextPiece();
    });
    if (!stopped_.ok()) return;
    CopyPiece(lock);
  }
}

// With the lock held, and a message in front.
size_t RingWriter::NextPiece() const {
  const size_t left = queue_.front().data.size() - front_copied_;
  return std::min({left, kLargestPiece, ring_.bytes().size() - Position()});
}

// With the lock held, which it releases inside.
void RingWriter::CopyPiece(std::unique_lock<std::mutex>& lock) {
  OutgoingFrame frame;
  frame.header.kind = FrameKind::kPiece;
  frame.header.number = queue_.front().number;
  frame.header.size = NextPiece();
  const auto piece = queue_.front().data.subspan(front_copied_, frame.header.size);
  std::byte* target = ring_.bytes().data() + Position();
  copying_ = true;
  lock.unlock();
  std::memcpy(target, piece.data(), piece.size());
  lock.lock();
  copying_ = false;
  written_ += piece.size();
  front_copied_ += piece.size();
  const bool whole = front_copied_ == queue_.front().data.size();
  const base::Status stopped = stopped_;
  if (whole || !stopped.ok()) {
    frame.done = std::move(queue_.front().done);
    queue_.pop_front();
    front_copied_ = 0;
  }
  lock.unlock();
  if (stopped.ok())
    (void)frames_.Push(std::move(frame));  // `done` learns of a failure
  else
    frame.done(stopped);
  lock.lock();
}

}  // namespace longspan::comm
