#include <memory>
#include <new>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/closing.h"
#include "comm/frame_queue.h"
#include "comm/frame_writer.h"
#include "comm/socket/socket.h"
#include "comm/stream_socket.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

class SocketChannel : public Channel {
 public:
  SocketChannel(FileDescriptor socket, ChannelLimits limits)
      : socket_(std::move(socket)),
        limits_(limits),
        incoming_(limits),
        writer_(socket_.get(), limits),
        reader_([this] { Read(); }) {}
  ~SocketChannel() override {
    CloseEnd();
    reader_.join();
  }

  base::Status Send(std::vector<std::byte> frame) override {
    OutgoingFrame outgoing;
    outgoing.header.kind = FrameKind::kFrame;
    outgoing.header.size = frame.size();
    outgoing.owned = std::move(frame);
    outgoing.payload = outgoing.owned;
    return writer_.Push(std::move(outgoing));
  }
  base::Result<std::vector<std::byte>> Receive() override { return incoming_.Pop(); }
  base::Result<std::vector<std::byte>> ReceiveFor(std::chrono::nanoseconds timeout) override {
    return incoming_.PopFor(timeout);
  }
  void Close() override { CloseEnd(); }

 private:
  void CloseEnd() {
    writer_.FlushAndStop(ClosedHere());
    incoming_.Close(ClosedHere());
    ::shutdown(socket_.get(), SHUT_RDWR);  // wakes both threads, and tells the peer
  }

  // The reading thread: until the connection ends.
  void Read() {
    base::Status status;
    while (status.ok()) status = ReadFrame();
    writer_.Stop(status);  // first: who has received the end must not be able to send
    incoming_.End(status);
    ::shutdown(socket_.get(), SHUT_RDWR);
  }

  base::Status ReadFrame() {
    FrameHeader header;
    LONGSPAN_RETURN_IF_ERROR(ReadHeader(socket_.get(), header));
    if (header.kind != FrameKind::kFrame) return BrokenWire("it is not a frame of a channel");
    if (header.size > limits_.max_bytes) return BrokenWire("it is larger than the limit");
    std::vector<std::byte> frame;
    try {
      frame.resize(header.size);
    } catch (const std::bad_alloc&) {
      return base::ResourceExhausted("no memory for a message of {} bytes from the peer",
                                     header.size);
    }
    LONGSPAN_RETURN_IF_ERROR(ReadPayload(socket_.get(), frame));
    return incoming_.WaitAndPush(std::move(frame));
  }

  const FileDescriptor socket_;
  const ChannelLimits limits_;
  FrameQueue incoming_;
  FrameWriter writer_;
  std::thread reader_;
};

}  // namespace

base::Result<std::unique_ptr<Channel>> CreateSocketChannel(FileDescriptor socket,
                                                           ChannelLimits limits) {
  LONGSPAN_RETURN_IF_ERROR(AdoptSocket(socket));
  try {
    return std::unique_ptr<Channel>(std::make_unique<SocketChannel>(std::move(socket), limits));
  } catch (const std::system_error& error) {
    return NoThreads(error.what());
  }
}

}  // namespace longspan::comm
