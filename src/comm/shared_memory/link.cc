#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/closing.h"
#include "comm/rendezvous.h"
#include "comm/shared_memory/memory.h"
#include "comm/shared_memory/ring_writer.h"
#include "comm/shared_memory/shared_memory.h"
#include "comm/stream_socket.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

// Up to here a message goes through the stream itself: the frame writer then sends it from the
// thread that posts it, without a change of thread.
constexpr size_t kLargestInStream = 16 << 10;

class SharedMemoryLink : public Link {
 public:
  SharedMemoryLink(FileDescriptor socket, SharedMemory ring)
      : socket_(std::move(socket)),
        rendezvous_(socket_.get(), [this](uint64_t number,
                                          std::span<const std::byte> data) { Move(number, data); }),
        ring_writer_(std::move(ring), rendezvous_.writer()),
        reader_([this] { Read(); }) {}
  ~SharedMemoryLink() override {
    CloseEnd();
    reader_.join();
  }

  Transfer Send(uint64_t number, std::span<const std::byte> data) override {
    return rendezvous_.Send(number, data);
  }
  Transfer Receive(uint64_t number, std::span<std::byte> buffer) override {
    return rendezvous_.Receive(number, buffer);
  }
  void Close() override { CloseEnd(); }

 private:
  // A message that arrives in pieces.
  struct Incoming {
    uint64_t number;
    std::span<std::byte> left;  // of the buffer
  };

  void CloseEnd() {
    Fail(ClosedHere());
    rendezvous_.WaitUntilEnded();
  }

  void Fail(const base::Status& status) { ring_writer_.Stop(rendezvous_.Fail(status)); }

  void Move(uint64_t number, std::span<const std::byte> data) {
    if (data.size() <= kLargestInStream) return rendezvous_.SendInStream(number, data);
    ring_writer_.Push({number, data, [this, number](const base::Status& written) {
                         rendezvous_.EndSend(number, written);
                       }});
  }

  // The reading thread: until the connection ends.
  void Read() {
    base::Status status = MapMemoryOfPeer();
    while (status.ok()) status = ReadFrame();
    Fail(status);
    if (incoming_.has_value())
      rendezvous_.EndReceive(incoming_->number, rendezvous_.FirstFailure(status));
  }

  base::Status MapMemoryOfPeer() {
    LONGSPAN_ASSIGN_OR_RETURN(const FileDescriptor memory,
                              TakeMemory(socket_.get(), kSharedRingBytes));
    LONGSPAN_ASSIGN_OR_RETURN(memory_of_peer_, SharedMemory::MapOfPeer(memory, kSharedRingBytes));
    return base::OkStatus();
  }

  base::Status ReadFrame() {
    FrameHeader header;
    LONGSPAN_RETURN_IF_ERROR(ReadHeader(socket_.get(), header));
    switch (header.kind) {
      case FrameKind::kPiece:
        return ReadPiece(header);
      case FrameKind::kFreed:
        return ring_writer_.TakeFreed(header.size);
      default:
        return rendezvous_.TakeFrame(header);
    }
  }

  base::Status ReadPiece(const FrameHeader& header) {
    if (!incoming_.has_value()) {
      LONGSPAN_ASSIGN_OR_RETURN(const std::span<std::byte> buffer,
                                rendezvous_.StartReceive(header.number));
      incoming_ = {header.number, buffer};
    }
    const auto ring = std::as_const(memory_of_peer_).bytes();
    if (header.number != incoming_->number) return BrokenWire("it mixes pieces of two messages");
    if (header.size == 0 || header.size > incoming_->left.size())
      return BrokenWire("its piece does not fit the buffer");
    if (header.size > ring.size() - position_)
      return BrokenWire("its piece lies outside the shared memory");
    std::memcpy(incoming_->left.data(), ring.data() + position_, header.size);
    position_ = (position_ + header.size) % ring.size();
    incoming_->left = incoming_->left.subspan(header.size);
    TellFreed(header.size);
    if (!incoming_->left.empty()) return base::OkStatus();
    const uint64_t number = incoming_->number;
    incoming_.reset();
    rendezvous_.EndReceive(number, base::OkStatus());
    return base::OkStatus();
  }

  // Not of every piece: what the peer does not know of yet must only leave room for its largest.
  void TellFreed(size_t size) {
    read_untold_ += size;
    if (read_untold_ < kSharedRingBytes / 4) return;
    OutgoingFrame frame;
    frame.header.kind = FrameKind::kFreed;
    frame.header.size = std::exchange(read_untold_, 0);
    (void)rendezvous_.writer().Push(std::move(frame));  // a lost peer is noticed by the next read
  }
  static_assert(kSharedRingBytes / 4 + kLargestPiece <= kSharedRingBytes);

  const FileDescriptor socket_;
  Rendezvous rendezvous_;
  RingWriter ring_writer_;
  // The reading thread's own.
  SharedMemory memory_of_peer_;
  size_t position_ = 0;  // in that memory, of the next piece
  size_t read_untold_ = 0;
  std::optional<Incoming> incoming_;
  std::thread reader_;
};

}  // namespace

base::Result<std::unique_ptr<Link>> CreateSharedMemoryLink(FileDescriptor socket) {
  LONGSPAN_RETURN_IF_ERROR(AdoptUnixSocket(socket));
  LONGSPAN_ASSIGN_OR_RETURN(const FileDescriptor memory, CreateMemory(kSharedRingBytes));
  LONGSPAN_ASSIGN_OR_RETURN(auto ring, SharedMemory::MapOwn(memory, kSharedRingBytes));
  LONGSPAN_RETURN_IF_ERROR(PassMemory(socket.get(), memory, kSharedRingBytes));
  try {
    return std::unique_ptr<Link>(
        std::make_unique<SharedMemoryLink>(std::move(socket), std::move(ring)));
  } catch (const std::system_error& error) {
    return NoThreads(error.what());
  }
}

base::Result<LinkPair> CreateSharedMemoryLinkPair() {
  LONGSPAN_ASSIGN_OR_RETURN(auto sockets, CreateSocketPair());
  LONGSPAN_ASSIGN_OR_RETURN(auto first, CreateSharedMemoryLink(std::move(sockets.first)));
  LONGSPAN_ASSIGN_OR_RETURN(auto second, CreateSharedMemoryLink(std::move(sockets.second)));
  return LinkPair(std::move(first), std::move(second));
}

}  // namespace longspan::comm
