// Taking over a socket from outside.
#pragma once

#include "base/status.h"
#include "comm/file_descriptor.h"

namespace longspan::comm {

// Makes a connected stream socket ready for this folder: blocking, closed on exec, without the
// delays by which TCP gathers small messages. InvalidArgument when it is not a stream socket,
// Unavailable when it is not connected.
base::Status AdoptSocket(const FileDescriptor& socket);

// The error for an end whose threads cannot be started.
base::Status NoThreads(const char* reason);

}  // namespace longspan::comm
