#include "comm/frame_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include "comm/closing.h"

namespace longspan::comm {
namespace {

// Larger frames are copied into the socket by the writer's thread: the pusher has better things to
// do.
constexpr size_t kLargestPushedInline = 16 << 10;

// Writes what the socket takes at once of a frame of which `sent` bytes are written; -1 and errno
// as sendmsg.
ssize_t SendSome(int fd, const OutgoingFrame& frame, size_t sent) {
  const auto header = std::as_bytes(std::span(&frame.header, 1));
  const size_t of_header = std::min(sent, header.size());
  const auto header_left = header.subspan(of_header);
  const auto payload_left = frame.payload.subspan(sent - of_header);
  std::array<iovec, 2> parts = {
      iovec{const_cast<std::byte*>(header_left.data()), header_left.size()},
      iovec{const_cast<std::byte*>(payload_left.data()), payload_left.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  for (;;) {
    const ssize_t count = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0 || errno != EINTR) return count;
  }
}

base::Status WriteError(int error) {
  if (error == EPIPE || error == ECONNRESET) return ClosedByPeer();
  return base::Unavailable("the connection to the peer was lost: {}",
                           base::SystemError(error, "write to its socket").message());
}

void WaitForRoom(int fd) {
  pollfd room{fd, POLLOUT, 0};
  ::poll(&room, 1, -1);  // any return, also an interrupted one, leads to the next try
}

}  // namespace

FrameWriter::FrameWriter(int fd, ChannelLimits limits)
    : fd_(fd), limits_(limits), thread_([this] { Run(); }) {}

FrameWriter::~FrameWriter() {
  Stop(ClosedHere());
  ::shutdown(fd_, SHUT_RDWR);  // wakes a thread that waits for room
  thread_.join();
}

base::Status FrameWriter::Push(OutgoingFrame frame) {
  std::unique_lock lock(mutex_);
  if (base::Status status = Admit(frame); !status.ok()) {
    lock.unlock();
    if (frame.done) frame.done(status);
    return status;
  }
  const size_t size = frame.payload.size();
  queued_bytes_ += size;
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1 && !writing_ && size <= kLargestPushedInline) WriteFront(lock);
  if (!queue_.empty() && !writing_) work_.notify_one();
  return stopped_;
}

void FrameWriter::Stop(const base::Status& status) {
  std::unique_lock lock(mutex_);
  StopLocked(lock, status);
}

void FrameWriter::FlushAndStop(const base::Status& status) {
  std::unique_lock lock(mutex_);
  for (;;) {
    written_.wait(lock, [&] { return !writing_; });
    if (queue_.empty() || !stopped_.ok() || WriteFront(lock) == Progress::kNoRoom) break;
  }
  StopLocked(lock, status);
}

void FrameWriter::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return !stopped_.ok() || (!queue_.empty() && !writing_); });
    if (!stopped_.ok()) return;
    if (WriteFront(lock) == Progress::kWritten) continue;
    lock.unlock();
    WaitForRoom(fd_);
    lock.lock();
  }
}

base::Status FrameWriter::Admit(const OutgoingFrame& frame) const {
  if (!stopped_.ok()) return stopped_;
  const size_t size = frame.payload.size();
  if (size > limits_.max_bytes)
    return base::ResourceExhausted(
        "a message of {} bytes is larger than the {} that a channel takes", size,
        limits_.max_bytes);
  if (queue_.size() >= limits_.max_frames || size > limits_.max_bytes - queued_bytes_)
    return base::ResourceExhausted(
        "the peer does not read: {} messages of {} bytes in all wait for it; send less at once",
        queue_.size(), queued_bytes_);
  return base::OkStatus();
}

FrameWriter::Progress FrameWriter::WriteFront(std::unique_lock<std::mutex>& lock) {
  writing_ = true;
  // Stays where it is: others only append, and remove nothing while writing_.
  const OutgoingFrame& front = queue_.front();
  lock.unlock();
  const ssize_t count = SendSome(fd_, front, front_sent_);
  const int error = count < 0 ? errno : 0;
  lock.lock();
  writing_ = false;
  written_.notify_all();
  const bool full = error == EAGAIN || error == EWOULDBLOCK;
  if (error != 0 && !full) {
    StopLocked(lock, WriteError(error));
    ::shutdown(fd_, SHUT_RDWR);
    return Progress::kNoRoom;
  }
  if (!full) front_sent_ += static_cast<size_t>(count);
  if (front_sent_ == sizeof(FrameHeader) + front.payload.size())
    EndFront(lock, base::OkStatus());
  else if (!stopped_.ok())
    EndFront(lock, stopped_);
  return full ? Progress::kNoRoom : Progress::kWritten;
}

void FrameWriter::EndFront(std::unique_lock<std::mutex>& lock, const base::Status& status) {
  const OutgoingFrame frame = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= frame.payload.size();
  front_sent_ = 0;
  lock.unlock();
  if (frame.done) frame.done(status);
  lock.lock();
}

void FrameWriter::StopLocked(std::unique_lock<std::mutex>& lock, const base::Status& status) {
  if (stopped_.ok()) stopped_ = status;
  const base::Status ended = stopped_;
  // A frame that is being written stays in its place.
  const auto first = queue_.begin() + (writing_ ? 1 : 0);
  std::vector<OutgoingFrame> frames(std::make_move_iterator(first),
                                    std::make_move_iterator(queue_.end()));
  queue_.erase(first, queue_.end());
  queued_bytes_ = queue_.empty() ? 0 : queue_.front().payload.size();
  work_.notify_all();
  lock.unlock();
  for (const OutgoingFrame& frame : frames)
    if (frame.done) frame.done(ended);
  lock.lock();
}

}  // namespace longspan::comm
