#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/closing.h"
#include "comm/in_process/in_process.h"

namespace longspan::comm {
namespace {

template <typename Byte>
struct Posted {
  std::span<Byte> bytes;
  TransferSource source;
};
using PostedSend = Posted<const std::byte>;
using PostedReceive = Posted<std::byte>;

// What the two ends share. End e sends in direction e and receives in direction 1 - e.
class Meeting {
 public:
  Transfer Send(size_t end, uint64_t number, std::span<const std::byte> data) {
    return Post(end, directions_[end], &Direction::sends, number, data);
  }
  Transfer Receive(size_t end, uint64_t number, std::span<std::byte> buffer) {
    return Post(end, directions_[1 - end], &Direction::receives, number, buffer);
  }

  // Ends what is pending on both sides and waits for copies that other threads make: then no buffer
  // is in use.
  void Close(size_t end) {
    std::vector<std::pair<TransferSource, base::Status>> ended;
    std::unique_lock lock(mutex_);
    if (!closed_) {
      closed_ = true;
      closed_by_ = end;
      for (size_t from : {0, 1}) {
        for (auto& [number, send] : directions_[from].sends)
          ended.emplace_back(std::move(send.source), ClosedAsSeenBy(from));
        for (auto& [number, receive] : directions_[from].receives)
          ended.emplace_back(std::move(receive.source), ClosedAsSeenBy(1 - from));
        directions_[from] = {};
      }
      ++busy_;
      lock.unlock();
      for (auto& [source, status] : ended) source.Complete(std::move(status));
      lock.lock();
      Leave();
    }
    idle_.wait(lock, [&] { return busy_ == 0; });
  }

 private:
  struct Direction {
    std::map<uint64_t, PostedSend> sends;
    std::map<uint64_t, PostedReceive> receives;
  };
  struct Pair {
    PostedSend send;
    PostedReceive receive;
  };

  base::Status ClosedAsSeenBy(size_t end) const {
    return end == closed_by_ ? ClosedHere() : ClosedByPeer();
  }

  // Posts one side, and moves the message if the other side is there.
  template <typename Byte>
  Transfer Post(size_t end, Direction& direction, std::map<uint64_t, Posted<Byte>> Direction::*side,
                uint64_t number, std::span<Byte> bytes) {
    std::unique_lock lock(mutex_);
    if (closed_) return Transfer::Done(ClosedAsSeenBy(end));
    LONGSPAN_CHECK(!(direction.*side).contains(number),
                   "message {} is posted while one of this number is pending", number);
    TransferSource source;
    Transfer transfer = source.transfer();
    (direction.*side).emplace(number, Posted<Byte>{bytes, std::move(source)});
    std::optional<Pair> pair = TakePair(direction, number);
    if (!pair.has_value()) return transfer;
    ++busy_;
    lock.unlock();
    Move(number, *pair);
    lock.lock();
    Leave();
    return transfer;
  }

  // The send and the receive of a number, once both are posted.
  static std::optional<Pair> TakePair(Direction& direction, uint64_t number) {
    auto send = direction.sends.find(number);
    auto receive = direction.receives.find(number);
    if (send == direction.sends.end() || receive == direction.receives.end()) return std::nullopt;
    Pair pair{std::move(send->second), std::move(receive->second)};
    direction.sends.erase(send);
    direction.receives.erase(receive);
    return pair;
  }

  static void Move(uint64_t number, Pair& pair) {
    base::Status status;
    const std::span<const std::byte> from = pair.send.bytes;
    const std::span<std::byte> to = pair.receive.bytes;
    if (from.size() != to.size())
      status = SizesDiffer(number, from.size(), to.size());
    else if (!from.empty())
      std::memcpy(to.data(), from.data(), from.size());
    pair.send.source.Complete(status);
    pair.receive.source.Complete(status);
  }

  void Leave() {
    if (--busy_ == 0) idle_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable idle_;
  std::array<Direction, 2> directions_;
  int busy_ = 0;  // threads that use buffers or end transfers without the lock
  bool closed_ = false;
  size_t closed_by_ = 0;
};

class InProcessLink : public Link {
 public:
  InProcessLink(std::shared_ptr<Meeting> meeting, size_t end)
      : meeting_(std::move(meeting)), end_(end) {}
  ~InProcessLink() override { meeting_->Close(end_); }

  Transfer Send(uint64_t number, std::span<const std::byte> data) override {
    return meeting_->Send(end_, number, data);
  }
  Transfer Receive(uint64_t number, std::span<std::byte> buffer) override {
    return meeting_->Receive(end_, number, buffer);
  }
  void Close() override { meeting_->Close(end_); }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const size_t end_;
};

}  // namespace

LinkPair CreateInProcessLinkPair() {
  auto meeting = std::make_shared<Meeting>();
  return {std::make_unique<InProcessLink>(meeting, 0), std::make_unique<InProcessLink>(meeting, 1)};
}

}  // namespace longspan::comm
