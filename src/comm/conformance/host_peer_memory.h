// The memory of this process as if it were a device's, to test links that copy into it.
#pragma once

#include "comm/peer_memory.h"

namespace longspan::comm {

// Lives as long as the program. Places hold pointers: both ends are in this process.
PeerMemory& HostPeerMemory();

}  // namespace longspan::comm
