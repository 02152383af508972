// The sending half of a stream socket.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "comm/channel.h"
#include "comm/wire.h"

namespace longspan::comm {

struct OutgoingFrame {
  FrameHeader header;
  std::vector<std::byte> owned;        // keeps the payload, unless its owner does
  std::span<const std::byte> payload;  // in `owned`, or the caller's until `done`
  std::function<void(const base::Status&)> done = nullptr;  // called once; optional
};

// Writes frames in order to a socket that it does not own. Small frames are written by the thread
// that pushes them when the socket has room, so that they cost no change of thread; all else by a
// thread that sleeps when there is nothing to write or no room. No call waits for the peer to read.
// Thread-safe.
//
// When the connection breaks, the frames end with Unavailable and the socket is shut down, so that
// the reading half meets its end.
class FrameWriter {
 public:
  // `limits` bounds what is queued (payload bytes).
  FrameWriter(int fd, ChannelLimits limits);
  FrameWriter(const FrameWriter&) = delete;
  // Stops and joins the thread.
  ~FrameWriter();

  // Queues a frame. Not ok: it is not queued, or its connection broke; `done` gets the same status.
  // `done` runs without locks of the writer, on this thread or another.
  base::Status Push(OutgoingFrame frame);

  // Ends all frames that are not wholly written with `status` and takes no more. One that another
  // thread is writing just now ends when that write returns, which it does without waiting for the
  // peer. The first status stays.
  void Stop(const base::Status& status);
  // The same, after writing what the socket takes without waiting.
  void FlushAndStop(const base::Status& status);

 private:
  enum class Progress { kWritten, kNoRoom };

  void Run();
  base::Status Admit(const OutgoingFrame& frame) const;
  // These are called with the lock held and release it inside.
  Progress WriteFront(std::unique_lock<std::mutex>& lock);
  void EndFront(std::unique_lock<std::mutex>& lock, const base::Status& status);
  void StopLocked(std::unique_lock<std::mutex>& lock, const base::Status& status);

  const int fd_;
  const ChannelLimits limits_;
  std::mutex mutex_;
  std::condition_variable work_;     // for the thread: something to write, or stopped
  std::condition_variable written_;  // for FlushAndStop: writing_ has become false
  std::deque<OutgoingFrame> queue_;
  size_t queued_bytes_ = 0;
  size_t front_sent_ = 0;  // bytes of the front frame, with its header, that are written
  bool writing_ =
      false;  // a thread writes the front without the lock; only it may remove the front
  base::Status stopped_;  // not ok once stopped
  std::thread thread_;
};

}  // namespace longspan::comm
