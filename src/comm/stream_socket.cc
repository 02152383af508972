#include "comm/stream_socket.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace longspan::comm {

base::Result<std::pair<FileDescriptor, FileDescriptor>> CreateSocketPair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return base::SystemError(errno, "create a pair of sockets");
  return std::pair(FileDescriptor(ends[0]), FileDescriptor(ends[1]));
}

base::Status AdoptSocket(const FileDescriptor& socket) {
  const int fd = socket.get();
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return base::InvalidArgument("file descriptor {} is not a stream socket", fd);
  sockaddr_storage peer{};
  size = sizeof(peer);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0)
    return base::Unavailable("the socket is not connected to a peer");
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
      ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return base::SystemError(errno, "set the flags of the peer's socket");
  if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) {
    const int on = 1;
    if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
      return base::SystemError(errno, "set TCP_NODELAY on the peer's socket");
  }
  return base::OkStatus();
}

base::Status NoThreads(const char* reason) {
  return base::ResourceExhausted(
      "cannot start the threads of a connection: {}; raise the limit of processes (ulimit -u)",
      reason);
}

}  // namespace longspan::comm
