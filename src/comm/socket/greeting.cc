// The first frames of a TCP connection.
#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "comm/closing.h"
#include "comm/deadline.h"
#include "comm/socket/tcp.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

constexpr size_t kLargestGreeting = 64 << 10;

std::vector<std::byte> Encode(const Greeting& greeting) {
  base::ByteWriter writer;
  writer.WriteString(greeting.build);
  writer.WriteString(greeting.identity);
  writer.Write(static_cast<uint32_t>(greeting.agreement.size()));
  for (const auto& [name, value] : greeting.agreement) {
    writer.WriteString(name);
    writer.WriteString(value);
  }
  return writer.Take();
}

base::Result<Greeting> Decode(std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  Greeting greeting;
  greeting.build = reader.ReadString();
  greeting.identity = reader.ReadString();
  const uint32_t count = reader.ReadCount(2 * sizeof(uint32_t));
  for (uint32_t i = 0; i < count && reader.status().ok(); ++i) {
    std::string name = reader.ReadString();
    greeting.agreement.emplace_back(std::move(name), reader.ReadString());
  }
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  return greeting;
}

base::Status SlowPeer() {
  return base::DeadlineExceeded("the peer connected and then did not introduce itself in time");
}

// Moves `bytes` through a socket by `move`, a function like recv and send, before the deadline.
template <typename Byte, typename Move>
base::Status MoveFully(int fd, int16_t events, std::span<Byte> bytes, TimePoint deadline,
                       Move move) {
  while (!bytes.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return SlowPeer();
    pollfd waited{fd, events, 0};
    const auto limit = static_cast<int>(std::min<int64_t>(left.count(), 1000));
    if (::poll(&waited, 1, limit) <= 0) continue;
    const ssize_t count = move(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
      return ClosedByPeer();
    }
  }
  return base::OkStatus();
}

base::Status SendGreeting(int fd, const Greeting& mine, TimePoint deadline) {
  const std::vector<std::byte> payload = Encode(mine);
  LONGSPAN_CHECK(payload.size() <= kLargestGreeting, "a greeting of {} bytes", payload.size());
  FrameHeader header;
  header.kind = FrameKind::kGreeting;
  header.size = payload.size();
  LONGSPAN_RETURN_IF_ERROR(
      MoveFully(fd, POLLOUT, std::as_bytes(std::span(&header, 1)), deadline, ::send));
  return MoveFully(fd, POLLOUT, std::span(payload), deadline, ::send);
}

base::Result<Greeting> ReadGreeting(int fd, TimePoint deadline) {
  FrameHeader header;
  LONGSPAN_RETURN_IF_ERROR(
      MoveFully(fd, POLLIN, std::as_writable_bytes(std::span(&header, 1)), deadline, ::recv));
  LONGSPAN_RETURN_IF_ERROR(CheckHeader(header));
  if (header.kind != FrameKind::kGreeting) return BrokenWire("it is no greeting");
  if (header.size > kLargestGreeting) return BrokenWire("its greeting is too long");
  std::vector<std::byte> payload(header.size);
  LONGSPAN_RETURN_IF_ERROR(MoveFully(fd, POLLIN, std::span(payload), deadline, ::recv));
  return Decode(payload);
}

base::Status Differ(const std::string& what, const std::string& theirs, const std::string& mine) {
  return base::InvalidArgument(
      "{} is '{}' at the peer and '{}' here: start both with the same program, model and flags",
      what, theirs, mine);
}

const std::string* Find(const Greeting& greeting, const std::string& name) {
  for (const auto& [each, value] : greeting.agreement)
    if (each == name) return &value;
  return nullptr;
}

// In an order that both ends share, so that both name one difference: that of the lesser name.
base::Status CheckAgreement(const Greeting& theirs, const Greeting& mine) {
  if (theirs.build != mine.build) return Differ("the version", theirs.build, mine.build);
  std::vector<std::string> names;
  for (const Greeting* each : {&theirs, &mine})
    for (const auto& [name, value] : each->agreement) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string* its = Find(theirs, name);
    const std::string* own = Find(mine, name);
    const std::string absent = "(not set)";
    if (its == nullptr || own == nullptr || *its != *own)
      return Differ(name, its == nullptr ? absent : *its, own == nullptr ? absent : *own);
  }
  return base::OkStatus();
}

}  // namespace

base::Result<Greeting> ExchangeGreetings(const FileDescriptor& socket, const Greeting& mine,
                                         std::chrono::milliseconds timeout) {
  const TimePoint deadline = DeadlineAfter(timeout);
  LONGSPAN_RETURN_IF_ERROR(SendGreeting(socket.get(), mine, deadline));
  LONGSPAN_ASSIGN_OR_RETURN(Greeting theirs, ReadGreeting(socket.get(), deadline));
  LONGSPAN_RETURN_IF_ERROR(CheckAgreement(theirs, mine));
  return theirs;
}

}  // namespace longspan::comm
