#include "comm/socket/tcp.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "comm/deadline.h"

namespace longspan::comm {
namespace {

using std::chrono::milliseconds;
using TimePoint = std::chrono::steady_clock::time_point;

// Between two tries to connect.
constexpr milliseconds kRetryEvery(100);
// A host that does not answer at all is tried anew, since its address may have changed.
constexpr milliseconds kLongestTry(3000);

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

milliseconds LeftUntil(TimePoint deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(left));
}

// Sleeps until the socket is ready; false when the deadline comes first.
bool WaitFor(int fd, int16_t events, TimePoint deadline) {
  for (;;) {
    pollfd waited{fd, events, 0};
    const auto left = std::min<int64_t>(LeftUntil(deadline).count(), 1000000);
    const int ready = ::poll(&waited, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (left == 0) return false;
  }
}

// The addresses that a name stands for. Unavailable where asking again may help.
base::Result<AddressList> Resolve(const TcpAddress& address, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error == EAI_AGAIN)
    return base::Unavailable("the name of the host '{}' cannot be resolved just now", address.host);
  if (error != 0)
    return base::InvalidArgument("the host '{}' is unknown: {}; give another name or an IP address",
                                 address.host, ::gai_strerror(error));
  return AddressList(found, ::freeaddrinfo);
}

uint16_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

base::Status SetOption(int fd, int level, int option, int value) {
  if (::setsockopt(fd, level, option, &value, sizeof(value)) == 0) return base::OkStatus();
  return base::SystemError(errno, "set an option of a TCP socket");
}

// Retrying to connect to a port of this host that nobody listens on can meet itself.
bool IsConnectedToItself(int fd) {
  std::array<sockaddr_storage, 2> ends{};
  std::array<socklen_t, 2> sizes = {sizeof(sockaddr_storage), sizeof(sockaddr_storage)};
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&ends[0]), &sizes[0]) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&ends[1]), &sizes[1]) == 0 &&
         sizes[0] == sizes[1] && std::memcmp(&ends[0], &ends[1], sizes[0]) == 0;
}

// One try with one address. Unavailable says why not.
base::Result<FileDescriptor> TryConnect(const addrinfo& address, TimePoint deadline) {
  FileDescriptor socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!socket.valid()) return base::Unavailable("{}", std::strerror(errno));
  int error = 0;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    if (!WaitFor(socket.get(), POLLOUT, deadline))
      return base::Unavailable("the host does not answer");
    socklen_t size = sizeof(error);
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error == 0 && IsConnectedToItself(socket.get())) error = ECONNREFUSED;
  if (error != 0) return base::Unavailable("{}", std::strerror(error));
  if (::fcntl(socket.get(), F_SETFL, 0) != 0)
    return base::SystemError(errno, "set the flags of a TCP socket");
  return socket;
}

base::Result<FileDescriptor> TryConnect(const TcpAddress& address, TimePoint deadline) {
  LONGSPAN_ASSIGN_OR_RETURN(const AddressList found, Resolve(address, 0));
  base::Status status = base::Unavailable("the host has no address");
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    auto socket = TryConnect(*one, std::min(deadline, DeadlineAfter(kLongestTry)));
    if (socket.ok()) return socket;
    status = socket.status();
  }
  return status;
}

}  // namespace

base::Result<TcpAddress> TcpAddress::Parse(std::string_view text) {
  TcpAddress address;
  const size_t colon = text.rfind(':');
  const std::string_view port = colon == text.npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size())
    return base::InvalidArgument(
        "'{}' is not an address: write HOST:PORT, with a port from 0 to 65535", text);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return base::InvalidArgument("'{}' is not an address: write [{}]:{} for IPv6", text, host,
                                 port);
  }
  if (host.empty())
    return base::InvalidArgument("'{}' is not an address: write the host before the port", text);
  address.host = host;
  return address;
}

std::string TcpAddress::ToString() const {
  const bool is_ipv6 = host.find(':') != host.npos;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

base::Status SetPeerTimeout(const FileDescriptor& socket, milliseconds peer_timeout) {
  const int fd = socket.get();
  const auto seconds =
      std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(peer_timeout).count());
  // Probes while nothing is sent; the user timeout ends both an idle and a busy connection.
  const auto probe_every = static_cast<int>(std::max<int64_t>(1, seconds / 4));
  LONGSPAN_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
  LONGSPAN_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, probe_every));
  LONGSPAN_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, probe_every));
  LONGSPAN_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 4));
  return SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(1000 * seconds));
}

base::Result<TcpAddress> LocalAddress(const FileDescriptor& socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  std::array<char, NI_MAXHOST> host{};
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return base::SystemError(errno, "read the address of a TCP socket");
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return base::Internal("the address of a TCP socket has no text");
  return TcpAddress{host.data(), PortOf(bound)};
}

base::Result<TcpListener> TcpListener::Listen(const TcpAddress& address) {
  LONGSPAN_ASSIGN_OR_RETURN(const AddressList found, Resolve(address, AI_PASSIVE));
  FileDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return base::SystemError(errno, "create a TCP socket");
  // A program that is started anew gets its port although old connections linger.
  LONGSPAN_RETURN_IF_ERROR(SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1));
  if (::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    if (error == EADDRINUSE)
      return base::Unavailable("{} is in use by another program: choose another port",
                               address.ToString());
    return base::InvalidArgument("cannot listen on {}: {}; give an address of this host",
                                 address.ToString(), std::strerror(error));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return base::SystemError(errno, "read the address of a TCP socket");
  return TcpListener(std::move(socket), {address.host, PortOf(bound)});
}

base::Result<FileDescriptor> TcpListener::Accept(milliseconds timeout, milliseconds peer_timeout) {
  const TimePoint deadline = DeadlineAfter(timeout);
  while (WaitFor(socket_.get(), POLLIN, deadline)) {
    FileDescriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid()) {
      LONGSPAN_RETURN_IF_ERROR(SetPeerTimeout(socket, peer_timeout));
      return socket;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return base::ResourceExhausted("cannot take a connection: {}; raise the limit (ulimit -n)",
                                     std::strerror(errno));
    // Otherwise it has gone before it was taken.
  }
  return base::DeadlineExceeded("nobody connected to {} within {} ms", address_.ToString(),
                                timeout.count());
}

base::Result<FileDescriptor> ConnectTcp(const TcpAddress& address, milliseconds timeout,
                                        milliseconds peer_timeout) {
  const TimePoint deadline = DeadlineAfter(timeout);
  for (;;) {
    auto socket = TryConnect(address, deadline);
    if (socket.ok()) {
      LONGSPAN_RETURN_IF_ERROR(SetPeerTimeout(*socket, peer_timeout));
      return socket;
    }
    if (socket.status().code() != base::StatusCode::kUnavailable) return socket;
    if (LeftUntil(deadline) <= kRetryEvery)
      return base::DeadlineExceeded(
          "no connection to {} within {} ms ({}): start the program there, or mend the address",
          address.ToString(), timeout.count(), socket.status().message());
    std::this_thread::sleep_for(kRetryEvery);
  }
}

}  // namespace longspan::comm
