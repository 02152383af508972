#include "comm/wire.h"

#include <cerrno>
#include <sys/socket.h>

#include "comm/closing.h"

namespace longspan::comm {
namespace {

// Reads until `bytes` is full; at the end of the stream gives `at_end` if nothing was read.
base::Status ReadFully(int fd, std::span<std::byte> bytes, base::Status (*at_end)()) {
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::recv(fd, bytes.data() + filled, bytes.size() - filled, 0);
    if (count > 0) {
      filled += static_cast<size_t>(count);
    } else if (count == 0 || errno == ECONNRESET) {
      return filled == 0 ? at_end() : ClosedInsideMessage();
    } else if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH ||
               errno == EHOSTDOWN || errno == ENETDOWN) {
      return base::Unavailable("the network connection to the peer was lost");
    } else if (errno != EINTR) {
      return base::SystemError(errno, "read from the peer's socket");
    }
  }
  return base::OkStatus();
}

}  // namespace

base::Status CheckHeader(const FrameHeader& header) {
  if (header.magic != FrameHeader::kMagic) return BrokenWire("it does not begin with the magic");
  if (header.version != FrameHeader::kVersion)
    return base::DataLoss(
        "the peer speaks version {} of the wire form and this program version {}: start the same "
        "build on every rank",
        header.version, FrameHeader::kVersion);
  return base::OkStatus();
}

base::Status BrokenWire(std::string_view what) {
  return base::DataLoss("a broken message came from the peer: {}", what);
}

base::Status ReadHeader(int fd, FrameHeader& header) {
  LONGSPAN_RETURN_IF_ERROR(
      ReadFully(fd, std::as_writable_bytes(std::span(&header, 1)), ClosedByPeer));
  return CheckHeader(header);
}

base::Status ReadPayload(int fd, std::span<std::byte> bytes) {
  return ReadFully(fd, bytes, ClosedInsideMessage);
}

}  // namespace longspan::comm
