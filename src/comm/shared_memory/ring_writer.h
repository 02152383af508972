// The sending half of a link through shared memory. Internal to comm/shared_memory.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <thread>

#include "base/status.h"
#include "comm/frame_writer.h"
#include "comm/shared_memory/memory.h"

namespace longspan::comm {

// A piece ends here, so that the peer reads the first while the next is written; measured (see
// link.cc). A piece also ends at the end of the ring.
inline constexpr size_t kLargestPiece = size_t{512} << 10;

// Copies messages piece by piece into a ring in shared memory, on a thread of its own, and tells
// the peer of each piece by a kPiece on the stream. Message follows message in order of Push. Both
// ends count the bytes of all pieces, so a piece's place needs no telling. Thread-safe.
class RingWriter {
 public:
  struct Message {
    uint64_t number = 0;
    std::span<const std::byte> data;                // not empty; unchanged until `done`
    std::function<void(const base::Status&)> done;  // called once, without locks
  };

  RingWriter(SharedMemory ring, FrameWriter& frames);
  RingWriter(const RingWriter&) = delete;
  // Stops and joins the thread.
  ~RingWriter();

  // Never waits. After Stop the message ends at once.
  void Push(Message message);

  // The peer has read `size` bytes more. DataLoss when that many are not there.
  base::Status TakeFreed(uint64_t size);

  // Ends all messages that are not wholly copied, and those to come, with `status`. One that is
  // being copied just now ends after that piece. The first status stays.
  void Stop(const base::Status& status);

 private:
  void Run();
  size_t NextPiece() const;
  void CopyPiece(std::unique_lock<std::mutex>& lock);
  size_t Position() const { return static_cast<size_t>(written_ % ring_.bytes().size()); }

  SharedMemory ring_;
  FrameWriter& frames_;
  std::mutex mutex_;
  std::condition_variable work_;  // a piece to copy and room for it, or stopped
  std::deque<Message> queue_;
  size_t front_copied_ = 0;  // bytes of the front message that are in the ring
  uint64_t written_ = 0;     // bytes of all pieces
  uint64_t freed_ = 0;       // bytes of them that the peer has read
  bool copying_ = false;     // the thread copies of the front without the lock
  base::Status stopped_;     // not ok once stopped
  std::thread thread_;
};

}  // namespace longspan::comm
