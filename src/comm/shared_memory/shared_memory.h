// Links between two processes of one host, through memory that both have mapped.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "comm/file_descriptor.h"
#include "comm/link.h"

namespace longspan::comm {

// Bytes of memory that an end has for what it sends. Larger messages go through it in pieces.
inline constexpr size_t kSharedRingBytes = size_t{2} << 20;

// A link over a connected AF_UNIX stream socket that nothing else reads or writes. Takes the socket
// over and makes it blocking and closed on exec. InvalidArgument when it is not such a socket,
// Unavailable when it is not connected, ResourceExhausted without memory or threads for it.
//
// The peer must make such a link of its own end too. Each end makes anonymous memory for what it
// sends and passes it over the socket, so there is no name that a killed process could leave; no
// one can resize it (sealed), and the receiver maps it read-only. Creating does not wait for the
// peer. An end has three threads, which sleep unless there is something to move.
base::Result<std::unique_ptr<Link>> CreateSharedMemoryLink(FileDescriptor socket);

// Two ends in this process, for tests.
base::Result<LinkPair> CreateSharedMemoryLinkPair();

}  // namespace longspan::comm
