#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/fault/delayed_actions.h"
#include "comm/fault/fate.h"
#include "comm/fault/fault.h"

namespace longspan::comm {
namespace {

using Frame = std::vector<std::byte>;

class FaultInjectingChannel : public Channel {
 public:
  FaultInjectingChannel(std::unique_ptr<Channel> channel, FaultPlan plan)
      : plan_(std::move(plan)), channel_(std::move(channel)), later_(plan_.delay) {}
  ~FaultInjectingChannel() override { CloseEnd(); }

  base::Status Send(Frame frame) override {
    // Held throughout, so that concurrent sends go out in the order in which they are counted.
    std::lock_guard lock(send_mutex_);
    const Fate fate = FateOf(plan_, messages_++);
    if (plan_.delay.count() == 0) return SendByFate(std::move(frame), fate);
    auto delayed = std::make_shared<Frame>(std::move(frame));
    const bool posted = later_.Post([this, delayed, fate] { SendDelayed(*delayed, fate); });
    // After Close the channel itself says so.
    if (!posted) return channel_->Send({});
    std::lock_guard error_lock(error_mutex_);
    return error_;
  }
  base::Result<Frame> Receive() override { return channel_->Receive(); }
  base::Result<Frame> ReceiveFor(std::chrono::nanoseconds timeout) override {
    return channel_->ReceiveFor(timeout);
  }
  void Close() override { CloseEnd(); }

 private:
  void CloseEnd() {
    closing_ = true;
    later_.Finish();
    channel_->Close();
  }

  base::Status SendByFate(Frame frame, Fate fate) {
    switch (fate) {
      case Fate::kKill:
        channel_->Close();
        break;
      case Fate::kDrop:
        return base::OkStatus();
      case Fate::kDuplicate:
        LONGSPAN_RETURN_IF_ERROR(channel_->Send(frame));
        break;
      case Fate::kTruncate:
        frame.resize(frame.size() / 2);
        break;
      case Fate::kSend:
        break;
    }
    return channel_->Send(std::move(frame));
  }

  void SendDelayed(const Frame& frame, Fate fate) {
    if (fate == Fate::kDuplicate) {
      SendDelayed(frame, Fate::kSend);
      fate = Fate::kSend;
    }
    base::Status status = SendByFate(frame, fate);
    while (status.code() == base::StatusCode::kResourceExhausted && !closing_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      status = SendByFate(frame, fate);
    }
    std::lock_guard lock(error_mutex_);
    if (error_.ok()) error_ = status;
  }

  const FaultPlan plan_;
  const std::unique_ptr<Channel> channel_;
  std::mutex send_mutex_;
  uint64_t messages_ = 0;
  std::mutex error_mutex_;
  base::Status error_;  // the first error of a delayed send
  std::atomic<bool> closing_ = false;
  DelayedActions later_;
};

}  // namespace

std::unique_ptr<Channel> CreateFaultInjectingChannel(std::unique_ptr<Channel> channel,
                                                     FaultPlan plan) {
  return std::make_unique<FaultInjectingChannel>(std::move(channel), std::move(plan));
}

}  // namespace longspan::comm
