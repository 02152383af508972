#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/fault/delayed_actions.h"
#include "comm/fault/fate.h"
#include "comm/fault/fault.h"

namespace longspan::comm {
namespace {

struct Message {
  uint64_t number;
  std::span<const std::byte> data;
};

class FaultInjectingLink : public Link {
 public:
  FaultInjectingLink(std::unique_ptr<Link> link, FaultPlan plan)
      : plan_(std::move(plan)), link_(std::move(link)), later_(plan_.delay) {}
  ~FaultInjectingLink() override { CloseEnd(); }

  Transfer Send(uint64_t number, std::span<const std::byte> data) override {
    // Held throughout, so that concurrent sends go out in the order in which they are counted.
    std::lock_guard lock(send_mutex_);
    const Message message{number, data};
    const Fate fate = FateOf(plan_, messages_++);
    if (plan_.delay.count() == 0) return SendByFate(message, fate);
    auto source = std::make_shared<TransferSource>();
    Transfer transfer = source->transfer();
    const bool posted = later_.Post([this, source, message, fate] {
      SendByFate(message, fate).OnDone([source](const base::Status& status) {
        source->Complete(status);
      });
    });
    if (posted) return transfer;
    source->Complete(base::OkStatus());  // nobody has seen it
    return link_->Send(number, data);    // after Close the link itself says so
  }
  Transfer Receive(uint64_t number, std::span<std::byte> buffer) override {
    return link_->Receive(number, buffer);
  }
  void Close() override { CloseEnd(); }

 private:
  using Bytes = std::vector<std::byte>;

  void CloseEnd() {
    later_.Finish();
    link_->Close();
  }

  Transfer SendByFate(const Message& message, Fate fate) {
    switch (fate) {
      case Fate::kKill:
        link_->Close();
        break;
      case Fate::kDrop:
        return {};
      case Fate::kDuplicate:
        return SendTwice(message);
      case Fate::kTruncate:
        return link_->Send(message.number, message.data.first(message.data.size() / 2));
      case Fate::kSend:
        break;
    }
    return link_->Send(message.number, message.data);
  }

  // The second one sets out once the first is done, from a copy, since the caller's buffer is then
  // free.
  Transfer SendTwice(const Message& message) {
    auto copy = std::make_shared<const Bytes>(message.data.begin(), message.data.end());
    Transfer first = link_->Send(message.number, message.data);
    first.OnDone([this, copy, number = message.number](const base::Status& status) {
      if (!status.ok()) return;
      later_.Post([this, copy, number] {
        link_->Send(number, *copy).OnDone([copy](const base::Status&) {});
      });
    });
    return first;
  }

  const FaultPlan plan_;
  const std::unique_ptr<Link> link_;
  std::mutex send_mutex_;
  uint64_t messages_ = 0;
  DelayedActions later_;
};

}  // namespace

std::unique_ptr<Link> CreateFaultInjectingLink(std::unique_ptr<Link> link, FaultPlan plan) {
  return std::make_unique<FaultInjectingLink>(std::move(link), std::move(plan));
}

}  // namespace longspan::comm
