#include "comm/rendezvous.h"

#include <limits>
#include <sys/socket.h>
#include <utility>

#include "base/check.h"
#include "comm/closing.h"

namespace longspan::comm {
namespace {

// Nothing is queued for a peer that has not asked for it.
constexpr ChannelLimits kNoLimits = {std::numeric_limits<size_t>::max(),
                                     std::numeric_limits<size_t>::max()};

}  // namespace

Rendezvous::Rendezvous(int fd, MoveMessage move)
    : fd_(fd), move_(std::move(move)), writer_(fd, kNoLimits) {}

Transfer Rendezvous::Send(uint64_t number, std::span<const std::byte> data) {
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

Transfer Rendezvous::Receive(uint64_t number, std::span<std::byte> buffer) {
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

void Rendezvous::SendInStream(uint64_t number, std::span<const std::byte> data) {
  OutgoingFrame frame;
  frame.header.kind = FrameKind::kMessage;
  frame.header.number = number;
  frame.header.size = data.size();
  frame.payload = data;
  frame.done = [this, number](const base::Status& written) { EndSend(number, written); };
  (void)writer_.Push(std::move(frame));  // `done` learns of a failure
}

base::Status Rendezvous::TakeFrame(const FrameHeader& header) {
  switch (header.kind) {
    case FrameKind::kReady:
      return TakeReady(header);
    case FrameKind::kRefused:
      return TakeRefusal(header);
    case FrameKind::kMessage:
      return ReadMessage(header);
    default:
      return BrokenWire("it is not of a kind that this link uses");
  }
}

base::Status Rendezvous::ReadMessage(const FrameHeader& header) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, StartReceive(header.number));
  base::Status status = header.size == buffer.size() ? ReadPayload(fd_, buffer)
                                                     : BrokenWire("its size is not the buffer's");
  EndReceive(header.number, status.ok() ? status : FirstFailure(status));
  return status;
}

base::Status Rendezvous::TakeReady(const FrameHeader& header) {
  std::span<const std::byte> data;
  {
    std::lock_guard lock(mutex_);
    auto send = sends_.find(header.number);
    if (send == sends_.end() || send->second.moving) {
      const bool is_new = ready_.emplace(header.number, header.size).second;
      return is_new ? base::OkStatus() : BrokenWire("it posts one buffer twice");
    }
    send->second.moving = true;
    data = send->second.bytes;
  }
  StartMessage(header.number, data, header.size);
  return base::OkStatus();
}

base::Status Rendezvous::TakeRefusal(const FrameHeader& header) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::span<std::byte> buffer, StartReceive(header.number));
  EndReceive(header.number, SizesDiffer(header.number, header.size, buffer.size()));
  return base::OkStatus();
}

base::Result<std::span<std::byte>> Rendezvous::StartReceive(uint64_t number) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  auto receive = receives_.find(number);
  if (receive == receives_.end() || receive->second.moving)
    return BrokenWire("nobody has posted a buffer for it");
  receive->second.moving = true;
  return receive->second.bytes;
}

void Rendezvous::EndSend(uint64_t number, const base::Status& status) {
  End(sends_, number, status);
}

void Rendezvous::EndReceive(uint64_t number, const base::Status& status) {
  End(receives_, number, status);
}

base::Status Rendezvous::Fail(const base::Status& status) {
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
  ::shutdown(fd_, SHUT_RDWR);
  std::lock_guard lock(mutex_);
  --ending_;
  ended_.notify_all();
  return failure;
}

void Rendezvous::WaitUntilEnded() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return sends_.empty() && receives_.empty() && ending_ == 0; });
}

base::Status Rendezvous::FirstFailure(const base::Status& status) {
  std::lock_guard lock(mutex_);
  return failure_.ok() ? status : failure_;
}

// With the lock held.
template <typename Byte>
Transfer Rendezvous::Post(PostedMap<Byte>& posted, uint64_t number, std::span<Byte> bytes) {
  LONGSPAN_CHECK(!posted.contains(number),
                 "message {} is posted while one of this number is pending", number);
  TransferSource source;
  Transfer transfer = source.transfer();
  posted.emplace(number, Posted<Byte>{bytes, std::move(source)});
  return transfer;
}

template <typename Byte>
void Rendezvous::TakeIdle(PostedMap<Byte>& posted, std::vector<TransferSource>& sources) {
  for (auto entry = posted.begin(); entry != posted.end();) {
    if (entry->second.moving) {
      ++entry;
    } else {
      sources.push_back(std::move(entry->second.source));
      entry = posted.erase(entry);
    }
  }
}

template <typename Byte>
void Rendezvous::End(PostedMap<Byte>& posted, uint64_t number, const base::Status& status) {
  std::unique_lock lock(mutex_);
  auto node = posted.extract(number);
  ++ending_;
  lock.unlock();
  node.mapped().source.Complete(status);
  lock.lock();
  --ending_;
  ended_.notify_all();
}

// Both sides of an own message are posted: moves it, or says that its size is wrong.
void Rendezvous::StartMessage(uint64_t number, std::span<const std::byte> data,
                              size_t buffer_size) {
  if (data.size() == buffer_size) {
    move_(number, data);
    return;
  }
  OutgoingFrame frame;
  frame.header.kind = FrameKind::kRefused;
  frame.header.number = number;
  frame.header.size = data.size();
  const base::Status outcome = SizesDiffer(number, data.size(), buffer_size);
  frame.done = [this, number, outcome](const base::Status& written) {
    EndSend(number, written.ok() ? outcome : written);
  };
  (void)writer_.Push(std::move(frame));  // `done` learns of a failure
}

}  // namespace longspan::comm
