#include "comm/shared_memory/memory.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "comm/closing.h"
#include "comm/stream_socket.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

base::Status NoMemory(size_t size) {
  return base::ResourceExhausted(
      "no memory for a link between two ranks of this host ({} bytes): {}; free some memory", size,
      std::strerror(errno));
}

base::Result<std::span<std::byte>> Map(const FileDescriptor& memory, size_t size, int protection) {
  void* address = ::mmap(nullptr, size, protection, MAP_SHARED, memory.get(), 0);
  if (address == MAP_FAILED) return NoMemory(size);
  return std::span(static_cast<std::byte*>(address), size);
}

// Room for one descriptor. (Of more the kernel drops what does not fit; padding may fit a second.)
union ControlBuffer {
  cmsghdr aligned;
  std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
};

// Takes the descriptors out of what recvmsg gave, and keeps the first; empty when there is none.
FileDescriptor TakeDescriptor(msghdr& message) {
  FileDescriptor first;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(fd), sizeof(fd));
      FileDescriptor taken(fd);
      if (!first.valid()) first = std::move(taken);
    }
  }
  return first;
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

base::Result<SharedMemory> SharedMemory::MapOwn(const FileDescriptor& memory, size_t size) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto bytes, Map(memory, size, PROT_READ | PROT_WRITE));
  return SharedMemory(bytes);
}

base::Result<SharedMemory> SharedMemory::MapOfPeer(const FileDescriptor& memory, size_t size) {
  struct stat status {};
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(memory.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(size))
    return BrokenWire("the memory passed with it is not of a fixed size");
  LONGSPAN_ASSIGN_OR_RETURN(const auto bytes, Map(memory, size, PROT_READ));
  return SharedMemory(bytes);
}

base::Status AdoptUnixSocket(const FileDescriptor& socket) {
  LONGSPAN_RETURN_IF_ERROR(AdoptSocket(socket));
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0)
    return base::SystemError(errno, "read the family of the peer's socket");
  if (domain != AF_UNIX)
    return base::InvalidArgument(
        "shared memory needs a socket between processes of one host (AF_UNIX)");
  return base::OkStatus();
}

base::Result<FileDescriptor> CreateMemory(size_t size) {
  FileDescriptor memory(::memfd_create("longspan-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Allocated now: where memory is short, a later first write could only be answered by a signal.
  if (!memory.valid() || ::fallocate(memory.get(), 0, 0, static_cast<off_t>(size)) != 0)
    return NoMemory(size);
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    return base::SystemError(errno, "seal the memory of a link");
  return memory;
}

base::Status PassMemory(int socket, const FileDescriptor& memory, size_t size, uint64_t number) {
  FrameHeader header;
  header.number = number;
  header.kind = FrameKind::kMemory;
  header.size = size;
  iovec part{&header, sizeof(header)};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  cmsghdr* passed = CMSG_FIRSTHDR(&message);
  passed->cmsg_level = SOL_SOCKET;
  passed->cmsg_type = SCM_RIGHTS;
  passed->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = memory.get();
  std::memcpy(CMSG_DATA(passed), &fd, sizeof(fd));
  const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(sizeof(header))) return base::OkStatus();
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return ClosedByPeer();
  if (sent < 0 && errno == EAGAIN) return base::ResourceExhausted("the peer does not read");
  return base::SystemError(errno, "pass the memory of a link to the peer");
}

base::Status ReadHeaderAndMemory(int socket, FrameHeader& header, FileDescriptor& memory) {
  const auto bytes = std::as_writable_bytes(std::span(&header, 1));
  iovec part{bytes.data(), bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  } while (count < 0 && errno == EINTR);
  if (count == 0 || (count < 0 && errno == ECONNRESET)) return ClosedByPeer();
  if (count < 0) return base::SystemError(errno, "read from the peer's socket");
  memory = TakeDescriptor(message);
  if (count < static_cast<ssize_t>(bytes.size())) return ClosedInsideMessage();
  return CheckHeader(header);
}

base::Result<FileDescriptor> TakeMemory(int socket, size_t size) {
  FrameHeader header;
  FileDescriptor memory;
  LONGSPAN_RETURN_IF_ERROR(ReadHeaderAndMemory(socket, header, memory));
  if (header.kind != FrameKind::kMemory || !memory.valid())
    return BrokenWire("it passes no memory, which a link through shared memory begins with");
  if (header.size != size) return BrokenWire("it passes memory of another size");
  return memory;
}

}  // namespace longspan::comm
