// The data plane between two ranks: tensors of a size that both sides know from the step plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "comm/transfer.h"

namespace longspan::comm {

// One end of a duplex connection that carries numbered messages asynchronously. A send and the
// peer's receive of the same number meet, whichever is posted first and in whatever order numbers
// are posted; each direction has its own numbers. A message is moved only when both are posted,
// straight from the sender's memory to the receiver's: one that nobody has posted a receive for
// stays with its sender and holds up no other.
//
// Any number of transfers may be in flight. Posting never waits for the peer, and between processes
// costs the caller a few microseconds: it copies at most a small message (16 KiB) into the kernel.
// A number may be used again after its transfer is done on both sides; posting it while one of that
// number and direction is pending at this end is a programmer's mistake. All members may be called
// from any thread.
//
// A message cannot get lost on its way while both ends live: every transport rests on a stream or
// on memory. So one that does not come was never sent, and an end cannot tell that from one that is
// posted late: numbers may come in any order, and a peer may compute for minutes. A transfer has
// therefore no time limit of its own. Whoever must not wait for ever waits with Transfer::WaitFor
// and then closes the link (ranks: the watchdog of plans), which ends everything that is pending.
//
// A transfer ends with ok, with DataLoss where the two sizes differ (on both sides; the link goes
// on) or where the connection carried something else than messages, or with Unavailable where the
// peer or this end has closed or died. Messages wholly sent before that can still arrive.
//
// The destructor closes and returns promptly, also when the peer hangs; no call may be in progress
// then.
class Link {
 public:
  virtual ~Link() = default;

  // Posts message `number`. The caller keeps `data` alive and unchanged until the transfer is done:
  // then the bytes are on their way (which does not say that they have arrived).
  virtual Transfer Send(uint64_t number, std::span<const std::byte> data) = 0;

  // Posts the buffer that message `number` will be written to; it is done when the whole message is
  // there. Nobody else may touch `buffer` before; on an error its content is unspecified.
  virtual Transfer Receive(uint64_t number, std::span<std::byte> buffer) = 0;

  // Whether the bytes are in the memory of a device and not the host's (comm/peer_copy).
  virtual bool takes_device_memory() const { return false; }

  // Ends both directions. Every pending transfer of this end is done when Close returns, so that
  // all buffers may be freed. Idempotent.
  virtual void Close() = 0;
};

using LinkPair = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;

}  // namespace longspan::comm
