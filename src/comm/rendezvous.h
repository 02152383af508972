// How the two ends of a link over a stream agree on a message: the protocol of kReady and kRefused.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "comm/frame_writer.h"
#include "comm/transfer.h"
#include "comm/wire.h"

namespace longspan::comm {

// The transfers that are posted at one end, and the end's writing half. A receive tells the peer by
// kReady that its buffer is there; a message sets out once the peer's kReady for it has come. So
// what arrives always has its buffer, and the thread that reads the stream never waits for a post.
//
// A transfer is `idle` from its post until both sides are there, then `moving` until whoever moves
// its bytes calls EndSend or EndReceive. Thread-safe.
class Rendezvous {
 public:
  // Moves a message whose two sides are posted and have one size. It must not wait, and leads to
  // one call of EndSend. Runs on the thread that posts the send or on the one that reads.
  using MoveMessage = std::function<void(uint64_t number, std::span<const std::byte> data)>;

  // `fd` is the stream's, and stays its owner's.
  Rendezvous(int fd, MoveMessage move);
  Rendezvous(const Rendezvous&) = delete;

  // As Link::Send and Link::Receive.
  Transfer Send(uint64_t number, std::span<const std::byte> data);
  Transfer Receive(uint64_t number, std::span<std::byte> buffer);

  // Moves a message through the stream itself: may be what `move` does.
  void SendInStream(uint64_t number, std::span<const std::byte> data);

  // What the reading thread does with a header of the peer that is no transport's own; reads the
  // message behind a kMessage. Not ok: the connection is over.
  base::Status TakeFrame(const FrameHeader& header);
  // The buffer of a message that begins to arrive: it is moving from here on.
  base::Result<std::span<std::byte>> StartReceive(uint64_t number);

  // The end of a moving transfer, told once by whoever moved its bytes.
  void EndSend(uint64_t number, const base::Status& status);
  void EndReceive(uint64_t number, const base::Status& status);

  // Ends what is idle, lets nothing new begin, stops the writer and shuts the socket down, so that
  // what moves ends soon. The first status stays; it is returned.
  base::Status Fail(const base::Status& status);
  // After Fail: sleeps until nothing moves and nobody completes a transfer.
  void WaitUntilEnded();
  // Why the link is over: `status`, unless it was over before that.
  base::Status FirstFailure(const base::Status& status);

  FrameWriter& writer() { return writer_; }

 private:
  template <typename Byte>
  struct Posted {
    std::span<Byte> bytes;
    TransferSource source;
    bool moving = false;
  };
  template <typename Byte>
  using PostedMap = std::map<uint64_t, Posted<Byte>>;

  template <typename Byte>
  static Transfer Post(PostedMap<Byte>& posted, uint64_t number, std::span<Byte> bytes);
  template <typename Byte>
  static void TakeIdle(PostedMap<Byte>& posted, std::vector<TransferSource>& sources);
  template <typename Byte>
  void End(PostedMap<Byte>& posted, uint64_t number, const base::Status& status);
  base::Status TakeReady(const FrameHeader& header);
  base::Status TakeRefusal(const FrameHeader& header);
  base::Status ReadMessage(const FrameHeader& header);
  void StartMessage(uint64_t number, std::span<const std::byte> data, size_t buffer_size);

  const int fd_;
  const MoveMessage move_;
  std::mutex mutex_;
  std::condition_variable ended_;
  PostedMap<const std::byte> sends_;
  PostedMap<std::byte> receives_;
  // The peer's buffers whose message is not posted here: their sizes.
  std::map<uint64_t, size_t> ready_;
  int ending_ = 0;        // threads that end transfers without the lock
  base::Status failure_;  // not ok once the link is over
  FrameWriter writer_;    // the last: its thread ends before the rest goes
};

}  // namespace longspan::comm
