// The control plane between two ranks: step plans, results, tokens.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/status.h"

namespace longspan::comm {

// How much a channel keeps for a peer that does not read, in each direction. A frame larger than
// max_bytes is never accepted.
struct ChannelLimits {
  size_t max_frames = 4096;
  size_t max_bytes = size_t{1} << 30;
};

// One end of a duplex connection that carries frames of any size (also empty ones) whole, in order
// and once. All members may be called from any thread; frames sent by one thread arrive in its
// order. Two threads that receive at once get different frames.
//
// The destructor closes and returns promptly, also when the peer hangs; no call may be in progress
// then.
class Channel {
 public:
  virtual ~Channel() = default;

  // Takes the frame over and returns at once; never waits for the peer to read. ResourceExhausted
  // beyond the limits (the frame is not sent, the channel stays usable); Unavailable when the peer
  // is gone or this end is closed. Ok doesn't promise that a peer which dies later has read the
  // frame.
  virtual base::Status Send(std::vector<std::byte> frame) = 0;

  // Waits for the next frame. Unavailable once the peer has closed or died and all that it had sent
  // before is received, and at once when this end is closed; DataLoss when the connection carried
  // something else than frames (it is over then).
  virtual base::Result<std::vector<std::byte>> Receive() = 0;

  // The same, but DeadlineExceeded when no frame comes within `timeout`; the channel stays usable.
  // A timeout of zero only looks.
  virtual base::Result<std::vector<std::byte>> ReceiveFor(std::chrono::nanoseconds timeout) = 0;

  // Ends both directions and wakes everyone who waits, here and at the peer. What the peer has sent
  // and nobody has received here is dropped. What was sent here can still be received there as far
  // as the connection takes it without waiting. Idempotent.
  virtual void Close() = 0;
};

using ChannelPair = std::pair<std::unique_ptr<Channel>, std::unique_ptr<Channel>>;

}  // namespace longspan::comm
