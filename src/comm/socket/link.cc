#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/closing.h"
#include "comm/rendezvous.h"
#include "comm/socket/socket.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

// Messages go through the stream itself, straight from and to the posted buffers.
class SocketLink : public Link {
 public:
  explicit SocketLink(FileDescriptor socket)
      : socket_(std::move(socket)),
        rendezvous_(socket_.get(),
                    [this](uint64_t number, std::span<const std::byte> data) {
                      rendezvous_.SendInStream(number, data);
                    }),
        reader_([this] { Read(); }) {}
  ~SocketLink() override {
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
  void CloseEnd() {
    (void)rendezvous_.Fail(ClosedHere());
    rendezvous_.WaitUntilEnded();
  }

  // The reading thread: until the connection ends.
  void Read() {
    base::Status status;
    while (status.ok()) status = ReadFrame();
    (void)rendezvous_.Fail(status);
  }

  base::Status ReadFrame() {
    FrameHeader header;
    LONGSPAN_RETURN_IF_ERROR(ReadHeader(socket_.get(), header));
    return rendezvous_.TakeFrame(header);
  }

  const FileDescriptor socket_;
  Rendezvous rendezvous_;
  std::thread reader_;
};

}  // namespace

base::Result<std::unique_ptr<Link>> CreateSocketLink(FileDescriptor socket) {
  LONGSPAN_RETURN_IF_ERROR(AdoptSocket(socket));
  try {
    return std::unique_ptr<Link>(std::make_unique<SocketLink>(std::move(socket)));
  } catch (const std::system_error& error) {
    return NoThreads(error.what());
  }
}

}  // namespace longspan::comm
