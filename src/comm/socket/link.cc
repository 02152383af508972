#include <condition_variable>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/closing.h"
#include "comm/socket/adopt.h"
#include "comm/socket/frame_writer.h"
#include "comm/socket/socket.h"
#include "comm/socket/wire.h"

namespace longspan::comm {
namespace {

// A posted buffer. While `moving`, a thread reads or writes it without the lock and will end it.
template <typename Byte>
struct Posted {
  std::span<Byte> bytes;
  TransferSource source;
  bool moving = false;
};

// A receive tells the peer by kReady that its buffer is there; a message goes out once the peer's
// kReady for it has come. So what arrives always has its buffer, and the reading thread never waits
// for a post.
class SocketLink : public Link {
 public:
  explicit SocketLink(FileDescriptor socket)
      : socket_(std::move(socket)),
        writer_(socket_.get(),
                {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max()}),
        reader_([this] { Read(); }) {}
  ~SocketLink() override {
    CloseEnd();
    reader_.join();
  }

  Transfer Send(uint64_t number, std::span<const std::byte> data) override {
    std::unique_lock lock(mutex_);
    if (!failure_.ok()) return Transfer::Done(failure_);
    Transfer transfer = Post(sends_, number, data);
    auto ready = ready_.find(number);
    if (ready == ready_.end()) return transfer;
    const size_t buffer_size = ready->second;
    ready_.erase(ready);
    sends_.at(number).moving = true;
    lock.unlock();
    StartMessage(number, data, buffer_size);
    return transfer;
  }

  Transfer Receive(uint64_t number, std::span<std::byte> buffer) override {
    Transfer transfer;
    {
      std::lock_guard lock(mutex_);
      if (!failure_.ok()) return Transfer::Done(failure_);
      transfer = Post(receives_, number, buffer);
    }
    OutgoingFrame frame;
    frame.header.kind = FrameKind::kReady;
    frame.header.number = number;
    frame.header.size = buffer.size();
    // If the connection breaks here, the reading thread notices and ends the receive.
    (void)writer_.Push(std::move(frame));
    return transfer;
  }

  void Close() override { CloseEnd(); }

 private:
  template <typename Byte>
  using PostedMap = std::map<uint64_t, Posted<Byte>>;

  // With the lock held.
  template <typename Byte>
  static Transfer Post(PostedMap<Byte>& posted, uint64_t number, std::span<Byte> bytes) {
    LONGSPAN_CHECK(!posted.contains(number),
                   "message {} is posted while one of this number is pending", number);
    TransferSource source;
    Transfer transfer = source.transfer();
    posted.emplace(number, Posted<Byte>{bytes, std::move(source)});
    return transfer;
  }

  // Ends a posted transfer that is `moving`.
  template <typename Byte>
  void End(PostedMap<Byte>& posted, uint64_t number, const base::Status& status) {
    std::unique_lock lock(mutex_);
    auto node = posted.extract(number);
    ++ending_;
    lock.unlock();
    node.mapped().source.Complete(status);
    lock.lock();
    --ending_;
    ended_.notify_all();
  }

  // Both sides of an own message are posted: sends it, or says that its size is wrong.
  void StartMessage(uint64_t number, std::span<const std::byte> data, size_t buffer_size) {
    OutgoingFrame frame;
    frame.header.number = number;
    frame.header.size = data.size();
    base::Status outcome;
    if (data.size() == buffer_size) {
      frame.header.kind = FrameKind::kMessage;
      frame.payload = data;
    } else {
      frame.header.kind = FrameKind::kRefused;
      outcome = SizesDiffer(number, data.size(), buffer_size);
    }
    frame.done = [this, number, outcome](const base::Status& written) {
      End(sends_, number, written.ok() ? outcome : written);
    };
    (void)writer_.Push(std::move(frame));  // `done` learns of a failure
  }

  // Ends what is pending and lets nothing new begin. What is moving is ended by who moves it, and
  // soon: the socket is shut down.
  void Fail(const base::Status& status) {
    std::vector<TransferSource> sources;
    base::Status failure;
    {
      std::lock_guard lock(mutex_);
      if (failure_.ok()) failure_ = status;
      failure = failure_;
      TakeIdle(sends_, sources);
      TakeIdle(receives_, sources);
      ready_.clear();
      ++ending_;
    }
    for (TransferSource& source : sources) source.Complete(failure);
    writer_.Stop(failure);
    ::shutdown(socket_.get(), SHUT_RDWR);
    std::lock_guard lock(mutex_);
    --ending_;
    ended_.notify_all();
  }

  template <typename Byte>
  static void TakeIdle(PostedMap<Byte>& posted, std::vector<TransferSource>& sources) {
    for (auto entry = posted.begin(); entry != posted.end();) {
      if (entry->second.moving) {
        ++entry;
      } else {
        sources.push_back(std::move(entry->second.source));
        entry = posted.erase(entry);
      }
    }
  }

  void CloseEnd() {
    Fail(ClosedHere());
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return sends_.empty() && receives_.empty() && ending_ == 0; });
  }

  // The reading thread: until the connection ends.
  void Read() {
    base::Status status;
    while (status.ok()) status = ReadFrame();
    Fail(status);
  }

  base::Status ReadFrame() {
    FrameHeader header;
    LONGSPAN_RETURN_IF_ERROR(ReadHeader(socket_.get(), header));
    switch (header.kind) {
      case FrameKind::kReady:
        return TakeReady(header.number, header.size);
      case FrameKind::kMessage:
        return ReadMessage(header.number, header.size);
      case FrameKind::kRefused:
        return TakeRefusal(header.number, header.size);
      default:
        return BrokenWire("it is not of a kind that links use");
    }
  }

  base::Status TakeReady(uint64_t number, uint64_t buffer_size) {
    std::span<const std::byte> data;
    {
      std::lock_guard lock(mutex_);
      auto send = sends_.find(number);
      if (send == sends_.end() || send->second.moving) {
        const bool is_new = ready_.emplace(number, buffer_size).second;
        return is_new ? base::OkStatus() : BrokenWire("it posts one buffer twice");
      }
      send->second.moving = true;
      data = send->second.bytes;
    }
    StartMessage(number, data, buffer_size);
    return base::OkStatus();
  }

  // Finds the receive that a message of the peer is for; from then on this thread ends it.
  base::Result<std::span<std::byte>> StartReceive(uint64_t number) {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    auto receive = receives_.find(number);
    if (receive == receives_.end()) return BrokenWire("nobody has posted a buffer for it");
    receive->second.moving = true;
    return receive->second.bytes;
  }

  base::Status ReadMessage(uint64_t number, uint64_t size) {
    LONGSPAN_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, StartReceive(number));
    base::Status status = size == buffer.size() ? ReadPayload(socket_.get(), buffer)
                                                : BrokenWire("its size is not the buffer's");
    End(receives_, number, status.ok() ? status : FirstFailure(status));
    return status;
  }

  base::Status TakeRefusal(uint64_t number, uint64_t size) {
    LONGSPAN_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, StartReceive(number));
    End(receives_, number, SizesDiffer(number, size, buffer.size()));
    return base::OkStatus();
  }

  // Why the link is over: `status`, unless it was over before that.
  base::Status FirstFailure(const base::Status& status) {
    std::lock_guard lock(mutex_);
    return failure_.ok() ? status : failure_;
  }

  const FileDescriptor socket_;
  std::mutex mutex_;
  std::condition_variable ended_;
  PostedMap<const std::byte> sends_;
  PostedMap<std::byte> receives_;
  std::map<uint64_t, size_t>
      ready_;             // the peer's buffers whose message is not posted here: their sizes
  int ending_ = 0;        // threads that end transfers without the lock
  base::Status failure_;  // not ok once the link is over
  FrameWriter writer_;
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
