#include "comm/peer_copy/peer_link.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "comm/closing.h"

namespace longspan::comm {
namespace {

// The receiver's message: where the data shall go.
struct Place {
  uint64_t size = 0;
  PeerPlace place{};
};
// The sender's answer.
struct Answer {
  uint64_t size = 0;  // of its data
  uint64_t copied = 0;
};

template <typename T>
std::span<std::byte> BytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

uint64_t PlaceNumber(uint64_t number) { return 2 * number; }
uint64_t AnswerNumber(uint64_t number) { return 2 * number + 1; }
// "I close", and "I copy nothing any more".
constexpr uint64_t kClosingNumber = UINT64_MAX;
constexpr uint64_t kQuietNumber = UINT64_MAX - 1;
// A copy takes milliseconds, whatever its process does; who does not answer by then begins none.
constexpr std::chrono::milliseconds kQuietWithin(500);

class PeerLink : public Link {
 public:
  PeerLink(std::unique_ptr<Link> inner, PeerMemory& memory)
      : inner_(std::move(inner)), memory_(memory), thread_([this] { RunActions(); }) {
    inner_->Receive(kClosingNumber, BytesOf(peer_closing_byte_))
        .OnDone(Then([this](const base::Status& status) {
          if (!status.ok()) return;
          std::unique_lock lock(mutex_);
          peer_closing_ = true;
          const bool quiet = copying_ == 0;
          lock.unlock();
          if (quiet) TellQuiet();
        }));
    inner_->Receive(kQuietNumber, BytesOf(peer_quiet_byte_))
        .OnDone(Then([this](const base::Status& /*status*/) {
          const std::lock_guard lock(mutex_);
          peer_quiet_ = true;
          changed_.notify_all();
        }));
  }

  ~PeerLink() override {
    Close();
    inner_.reset();  // joins the threads that end its transfers
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  bool takes_device_memory() const override { return true; }

  Transfer Send(uint64_t number, std::span<const std::byte> data) override {
    const auto posted = std::make_shared<PostedSend>();
    posted->data = data;
    Transfer transfer = posted->source.transfer();
    if (!Post(sends_, number, posted)) {
      posted->source.Complete(ClosedHere());
      return transfer;
    }
    inner_->Receive(PlaceNumber(number), BytesOf(posted->place))
        .OnDone(Then([this, number, posted](const base::Status& status) {
          OnPlace(number, posted, status);
        }));
    return transfer;
  }

  Transfer Receive(uint64_t number, std::span<std::byte> buffer) override {
    const auto posted = std::make_shared<PostedReceive>();
    posted->place.size = buffer.size();
    Transfer transfer = posted->source.transfer();
    if (!Post(receives_, number, posted)) {
      posted->source.Complete(ClosedHere());
      return transfer;
    }
    auto place = memory_.Export(buffer);
    if (!place.ok()) {
      End(receives_, number, posted->source, place.status());
      return transfer;
    }
    posted->place.place = *place;
    const auto part = [this, number, posted](const base::Status& status) {
      OnReceivePart(number, posted, status);
    };
    inner_->Receive(AnswerNumber(number), BytesOf(posted->answer)).OnDone(Then(part));
    inner_->Send(PlaceNumber(number), BytesOf(posted->place)).OnDone(Then(part));
    return transfer;
  }

  void Close() override {
    std::unique_lock lock(mutex_);
    const bool first = !std::exchange(closed_, true);
    lock.unlock();
    if (first) inner_->Send(kClosingNumber, BytesOf(closing_byte_));
    lock.lock();
    // A closed connection tells the peer that nothing is copied any more.
    changed_.wait(lock, [&] { return copying_ == 0; });
    changed_.wait_for(lock, kQuietWithin, [&] { return peer_quiet_; });
    lock.unlock();
    inner_->Close();
    lock.lock();
    changed_.wait(lock, [&] { return sends_.empty() && receives_.empty() && completing_ == 0; });
  }

 private:
  struct PostedSend {
    std::span<const std::byte> data;
    Place place;
    Answer answer;
    TransferSource source;
  };
  struct PostedReceive {
    Place place;
    Answer answer;
    TransferSource source;
    // Of the two messages; used by the thread of the link alone.
    int parts_done = 0;
    base::Status failure;
  };
  template <typename Posted>
  using PostedMap = std::map<uint64_t, std::shared_ptr<Posted>>;

  // False after Close().
  template <typename Posted>
  bool Post(PostedMap<Posted>& map, uint64_t number, const std::shared_ptr<Posted>& posted) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    const bool added = map.emplace(number, posted).second;
    LONGSPAN_CHECK(added, "message {} is posted while one of this number is pending", number);
    return true;
  }

  // The number may be used again, and then whoever waits hears of it.
  template <typename Posted>
  void End(PostedMap<Posted>& map, uint64_t number, TransferSource& source, base::Status status) {
    {
      const std::lock_guard lock(mutex_);
      map.erase(number);
      ++completing_;  // Close waits for it
    }
    source.Complete(std::move(status));
    const std::lock_guard lock(mutex_);
    --completing_;
    changed_.notify_all();
  }

  void OnPlace(uint64_t number, const std::shared_ptr<PostedSend>& posted,
               const base::Status& status) {
    if (!status.ok()) return End(sends_, number, posted->source, status);
    posted->answer.size = posted->data.size();
    if (posted->place.size != posted->data.size())
      return Reply(number, posted, SizesDiffer(number, posted->data.size(), posted->place.size));
    if (!BeginCopy())
      return End(sends_, number, posted->source, peer_closing_ ? ClosedByPeer() : ClosedHere());
    memory_.Copy(posted->data, posted->place.place)
        .OnDone(Then([this, number, posted](const base::Status& copied) {
          EndCopy();
          posted->answer.copied = copied.ok() ? 1 : 0;
          Reply(number, posted, copied);
        }));
  }

  // False once either end closes.
  bool BeginCopy() {
    const std::lock_guard lock(mutex_);
    if (closed_ || peer_closing_) return false;
    ++copying_;
    return true;
  }

  void EndCopy() {
    std::unique_lock lock(mutex_);
    --copying_;
    const bool quiet = copying_ == 0 && peer_closing_;
    changed_.notify_all();
    lock.unlock();
    if (quiet) TellQuiet();
  }

  void TellQuiet() { inner_->Send(kQuietNumber, BytesOf(quiet_byte_)); }

  // Tells the receiver, and ends the send once that is on its way.
  void Reply(uint64_t number, const std::shared_ptr<PostedSend>& posted,
             const base::Status& status) {
    inner_->Send(AnswerNumber(number), BytesOf(posted->answer))
        .OnDone(Then([this, number, posted, status](const base::Status& sent) {
          End(sends_, number, posted->source, status.ok() ? sent : status);
        }));
  }

  void OnReceivePart(uint64_t number, const std::shared_ptr<PostedReceive>& posted,
                     const base::Status& status) {
    if (posted->failure.ok()) posted->failure = status;
    if (++posted->parts_done < 2) return;
    base::Status end = posted->failure;
    if (end.ok() && posted->answer.size != posted->place.size)
      end = SizesDiffer(number, posted->answer.size, posted->place.size);
    else if (end.ok() && posted->answer.copied == 0)
      end = base::DataLoss("the peer could not copy message {} into this device's memory", number);
    End(receives_, number, posted->source, std::move(end));
  }

  // What shall happen on the link's thread when a transfer has ended.
  template <typename Function>
  std::function<void(const base::Status&)> Then(Function function) {
    return [this, function = std::move(function)](const base::Status& status) {
      const std::lock_guard lock(mutex_);
      actions_.push_back([function, status] { function(status); });
      changed_.notify_all();
    };
  }

  void RunActions() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !actions_.empty(); });
      if (actions_.empty()) return;
      const auto action = std::move(actions_.front());
      actions_.pop_front();
      lock.unlock();
      action();
      lock.lock();
    }
  }

  std::unique_ptr<Link> inner_;
  PeerMemory& memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  PostedMap<PostedSend> sends_;
  PostedMap<PostedReceive> receives_;
  std::deque<std::function<void()>> actions_;
  int completing_ = 0;
  bool peer_quiet_ = false;
  bool closed_ = false;
  bool ending_ = false;
  int copying_ = 0;
  bool peer_closing_ = false;  // written by the thread alone
  std::byte closing_byte_{}, quiet_byte_{}, peer_closing_byte_{}, peer_quiet_byte_{};
  std::thread thread_;  // the last: it uses the others
};

}  // namespace

std::unique_ptr<Link> CreatePeerLink(std::unique_ptr<Link> inner, PeerMemory& memory) {
  return std::make_unique<PeerLink>(std::move(inner), memory);
}

}  // namespace longspan::comm
