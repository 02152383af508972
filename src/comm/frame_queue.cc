#include "comm/frame_queue.h"

#include <utility>

#include "comm/deadline.h"

namespace longspan::comm {

using Frame = std::vector<std::byte>;

base::Status FrameQueue::Push(Frame frame) {
  std::lock_guard lock(mutex_);
  if (!end_.ok()) return end_;
  if (frame.size() > limits_.max_bytes) return TooLarge(frame.size());
  if (!Fits(frame))
    return base::ResourceExhausted(
        "the peer does not read: {} messages of {} bytes in all wait for it; send less at once",
        frames_.size(), bytes_);
  return Add(std::move(frame));
}

base::Status FrameQueue::WaitAndPush(Frame frame) {
  std::unique_lock lock(mutex_);
  if (frame.size() > limits_.max_bytes) return TooLarge(frame.size());
  drained_.wait(lock, [&] { return !end_.ok() || Fits(frame); });
  if (!end_.ok()) return end_;
  return Add(std::move(frame));
}

base::Result<Frame> FrameQueue::Pop() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [&] { return !end_.ok() || !frames_.empty(); });
  return Take();
}

base::Result<Frame> FrameQueue::PopFor(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!filled_.wait_until(lock, DeadlineAfter(timeout),
                          [&] { return !end_.ok() || !frames_.empty(); }))
    return base::DeadlineExceeded("no message came from the peer within {} ms",
                                  timeout.count() / 1000000);
  return Take();
}

void FrameQueue::End(base::Status status) {
  {
    std::lock_guard lock(mutex_);
    if (end_.ok()) end_ = std::move(status);
  }
  filled_.notify_all();
  drained_.notify_all();
}

void FrameQueue::Close(base::Status status) {
  std::deque<Frame> dropped;  // freed without the lock
  {
    std::lock_guard lock(mutex_);
    end_ = std::move(status);
    dropped.swap(frames_);
    bytes_ = 0;
  }
  filled_.notify_all();
  drained_.notify_all();
}

bool FrameQueue::Fits(const Frame& frame) const {
  return frames_.size() < limits_.max_frames && bytes_ + frame.size() <= limits_.max_bytes;
}

base::Status FrameQueue::Add(Frame frame) {
  bytes_ += frame.size();
  frames_.push_back(std::move(frame));
  filled_.notify_one();
  return base::OkStatus();
}

base::Result<Frame> FrameQueue::Take() {
  if (frames_.empty()) return end_;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  bytes_ -= frame.size();
  drained_.notify_one();
  return frame;
}

base::Status FrameQueue::TooLarge(size_t size) const {
  return base::ResourceExhausted("a message of {} bytes is larger than the {} that a channel takes",
                                 size, limits_.max_bytes);
}

}  // namespace longspan::comm
