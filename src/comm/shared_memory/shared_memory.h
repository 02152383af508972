// Links between two processes of one host, through memory that both have mapped.
//
// The bytes of a large message go sender -> ring -> receiver, in pieces, so that the peer copies
// one out while the next is copied in. Everything else goes over the socket beside it: which
// buffers are posted, which pieces are there and which are read, small messages whole (up to 16
// KiB: two copies through the kernel cost less than a change of thread), and the news of a peer
// that has died. So the memory holds no control words that a broken peer could spoil, a wake-up is
// the socket's, and nobody spins: a rank's core belongs to its computing thread.
//
// Measured between two processes on two cores against the same link over AF_UNIX alone (median of
// one way; streaming; processor time of the sender): 1 MiB 112 us, 4 to 7 GB/s, 80 us against 190
// us, 2.4 to 3.3 GB/s, 120 us; 16 MiB, where the memory itself sets the pace, 7.3 ms, 1.5 ms
// against 9.1 ms, 2.4 ms; 4 KiB alike, 16 us. To read straight from the sender's memory
// (process_vm_readv) copies once and not twice, but took longer for 1 MiB (95 us against 63 us
// without the link's own work), since it pins every page and the two copies overlap; it took the
// same processor time, and hosts often forbid it between siblings.
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
