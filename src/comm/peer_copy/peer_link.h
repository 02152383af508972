// A link whose messages go from device memory to device memory without passing through the hosts'.
#pragma once

#include <memory>

#include "comm/link.h"
#include "comm/peer_memory.h"

namespace longspan::comm {

// One end over `inner`, an end of a link of any other kind that is used for nothing else; the peer
// has the other end. Buffers are memory that `memory`, which must outlive the link, can export and
// copy. Message numbers are below 2^62.
//
// Whoever receives posts the place of its buffer as a message of `inner`; the sender copies the
// data there and answers when the copy is done. Both go through one thread per end, since a
// transfer's end may not call a link.
//
// Close() asks the peer to begin no more copies and waits until it has none under way, so that the
// memory of buffers may be freed then; a peer that does not answer within 500 ms hangs and begins
// none.
std::unique_ptr<Link> CreatePeerLink(std::unique_ptr<Link> inner, PeerMemory& memory);

}  // namespace longspan::comm
