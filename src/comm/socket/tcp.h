// TCP connections between hosts, for the channels and links of socket/socket.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "comm/file_descriptor.h"

namespace longspan::comm {

struct TcpAddress {
  std::string host;   // a name or a numeric address of IPv4 or IPv6, without brackets
  uint16_t port = 0;  // 0: for a listener, one that is free

  // "10.0.0.1:5000", "[::1]:5000", "node7:5000". InvalidArgument tells what is missing.
  static base::Result<TcpAddress> Parse(std::string_view text);
  std::string ToString() const;

  bool operator==(const TcpAddress&) const = default;
};

// How long a connection may stay without a sign of the peer's host, when a cable is cut or a host
// has lost power: then reads and writes fail, and so the channel or link over it ends with
// Unavailable. Rounded up to whole seconds; noticed at most a second later. (The end of a process
// is noticed at once.) A peer that does not read although something waits for it counts as lost,
// too.
base::Status SetPeerTimeout(const FileDescriptor& socket, std::chrono::milliseconds peer_timeout);

// The numeric address of this end of a connection: where its peer would find this host.
base::Result<TcpAddress> LocalAddress(const FileDescriptor& socket);

// A port on which peers are waited for. Move-only; closed when destroyed.
class TcpListener {
 public:
  // InvalidArgument when the address is not one of this host, Unavailable when the port is taken.
  static base::Result<TcpListener> Listen(const TcpAddress& address);

  // With the port that was chosen.
  const TcpAddress& address() const { return address_; }

  // The next connection, after SetPeerTimeout. DeadlineExceeded when none comes within `timeout`;
  // the listener stays usable.
  base::Result<FileDescriptor> Accept(std::chrono::milliseconds timeout,
                                      std::chrono::milliseconds peer_timeout);

 private:
  TcpListener(FileDescriptor socket, TcpAddress address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  FileDescriptor socket_;
  TcpAddress address_;
};

// Connects, and tries again until `timeout` is over: the peer may be started later. Then
// DeadlineExceeded, with the last reason. InvalidArgument when the name of the host is unknown. The
// connection is set up by SetPeerTimeout.
base::Result<FileDescriptor> ConnectTcp(const TcpAddress& address,
                                        std::chrono::milliseconds timeout,
                                        std::chrono::milliseconds peer_timeout);

// What the two ends of a fresh connection tell each other before anything else.
struct Greeting {
  std::string build;  // the program's version: equal on both sides
  // Who speaks and what the connection is for, in the caller's own form: "node 1: residual 0-1".
  std::string identity;
  // What must be equal on both sides besides, by name: ("model", "5f3a..."), ("--page-size", "64").
  std::vector<std::pair<std::string, std::string>> agreement;
};

// Sends `mine` and gives the peer's, within `timeout` (else DeadlineExceeded). Both ends call it,
// and both find the same: InvalidArgument that names the first difference in build or agreement;
// DataLoss when the peer speaks something else or another wire version; Unavailable when it hangs
// up. On an error the caller drops the connection. The socket is blocking afterwards.
base::Result<Greeting> ExchangeGreetings(const FileDescriptor& socket, const Greeting& mine,
                                         std::chrono::milliseconds timeout);

}  // namespace longspan::comm
