// The received frames of one end of a channel, until somebody asks for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "comm/channel.h"

namespace longspan::comm {

// A bounded queue of frames with an end. Thread-safe.
class FrameQueue {
 public:
  explicit FrameQueue(ChannelLimits limits) : limits_(limits) {}

  // Adds a frame; ResourceExhausted when it does not fit, the end's status after End or Close.
  base::Status Push(std::vector<std::byte> frame);
  // The same, but sleeps until it fits.
  base::Status WaitAndPush(std::vector<std::byte> frame);
  // The next frame, as Channel::Receive.
  base::Result<std::vector<std::byte>> Pop();
  base::Result<std::vector<std::byte>> PopFor(std::chrono::nanoseconds timeout);

  // No frame comes any more, because of `status` (not ok). What is queued can still be popped.
  void End(base::Status status);
  // The same, but drops what is queued.
  void Close(base::Status status);

 private:
  bool Fits(const std::vector<std::byte>& frame) const;
  base::Status Add(std::vector<std::byte> frame);
  base::Result<std::vector<std::byte>> Take();
  base::Status TooLarge(size_t size) const;

  const ChannelLimits limits_;
  std::mutex mutex_;
  std::condition_variable filled_;   // something to pop, or the end
  std::condition_variable drained_;  // room to push, or the end
  std::deque<std::vector<std::byte>> frames_;
  size_t bytes_ = 0;
  base::Status end_;  // not ok once ended
};

}  // namespace longspan::comm
