// Connected stream sockets: what transports are built on.
#pragma once

#include <utility>

#include "base/result.h"
#include "base/status.h"
#include "comm/file_descriptor.h"

namespace longspan::comm {

// Two connected AF_UNIX stream sockets, closed on exec. A process that is to inherit one by exec
// clears FD_CLOEXEC in the child, or passes it by another number with dup2.
base::Result<std::pair<FileDescriptor, FileDescriptor>> CreateSocketPair();

// Makes a connected stream socket ready for this folder: blocking, closed on exec, without the
// delays by which TCP gathers small messages. InvalidArgument when it is not a stream socket,
// Unavailable when it is not connected.
base::Status AdoptSocket(const FileDescriptor& socket);

// The error for an end whose threads cannot be started.
base::Status NoThreads(const char* reason);

}  // namespace longspan::comm
