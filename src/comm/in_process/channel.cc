#include <atomic>
#include <memory>
#include <utility>

#include "comm/closing.h"
#include "comm/frame_queue.h"
#include "comm/in_process/in_process.h"

namespace longspan::comm {
namespace {

class InProcessChannel : public Channel {
 public:
  InProcessChannel(std::shared_ptr<FrameQueue> incoming, std::shared_ptr<FrameQueue> outgoing)
      : incoming_(std::move(incoming)), outgoing_(std::move(outgoing)) {}
  ~InProcessChannel() override { CloseEnd(); }

  base::Status Send(std::vector<std::byte> frame) override {
    return SeenFromHere(outgoing_->Push(std::move(frame)));
  }
  base::Result<std::vector<std::byte>> Receive() override { return SeenFromHere(incoming_->Pop()); }
  base::Result<std::vector<std::byte>> ReceiveFor(std::chrono::nanoseconds timeout) override {
    return SeenFromHere(incoming_->PopFor(timeout));
  }
  void Close() override { CloseEnd(); }

 private:
  // The peer's sends fail from here on, and its receives after what was sent. The queues are
  // shared, so their end is told as the peer sees it.
  void CloseEnd() {
    closed_ = true;
    incoming_->Close(ClosedByPeer());
    outgoing_->End(ClosedByPeer());
  }

  template <typename T>
  T SeenFromHere(T result) const {
    return !result.ok() && closed_ ? T(ClosedHere()) : std::move(result);
  }

  std::atomic<bool> closed_ = false;
  const std::shared_ptr<FrameQueue> incoming_;
  const std::shared_ptr<FrameQueue> outgoing_;
};

}  // namespace

ChannelPair CreateInProcessChannelPair(ChannelLimits limits) {
  auto there = std::make_shared<FrameQueue>(limits);
  auto back = std::make_shared<FrameQueue>(limits);
  return {std::make_unique<InProcessChannel>(back, there),
          std::make_unique<InProcessChannel>(there, back)};
}

}  // namespace longspan::comm
