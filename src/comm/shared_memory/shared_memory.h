// Links and journals between processes of one host, through memory that they share.
//
// The bytes of a large message go sender -> ring -> receiver, in pieces, so that the peer copies
// one out while the next is copied in. Everything else goes over the socket beside it: which
// buffers are posted, which pieces are there and which are read, small messages whole (up to 16
// KiB: two copies through the kernel cost less than a change of thread), and the news of a peer
// that has died. So the memory holds no control words that a broken peer could spoil, a wake-up is
// the socket's, and nobody spins: a rank's core belongs to its computing thread.
//
// Measured between two processes on two cores that others used as well, against the same link over
// AF_UNIX alone. One way, the best and the median; the sender's processor time for a message:
//   4 KiB    12 us, 16 us;   7 us       against  11 us, 16 us;    7 us
//   1 MiB    92 us, 120 us;  65 us      against  168 us, 180 us;  112 us
//   16 MiB   2.2 ms best;    1.3 ms     against  3.6 ms best;     2.3 ms
// To read straight from the sender's memory (process_vm_readv) copies once and not twice, but took
// longer in a bare trial (1 MiB: 92 us against 62 us), since it pins every page and the two copies
// overlap; it took the same processor time, and hosts often forbid it between siblings.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/file_descriptor.h"
#include "comm/journal.h"
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

// A journal over connected AF_UNIX stream sockets that nothing else reads or writes, one for each
// reader; takes them over, as above.
//
// Entries lie one after another in segments of anonymous memory (1 MiB, or one entry that is
// larger), written once by the writer and copied out by each reader. A segment is passed over the
// sockets before its first entry, and 24 bytes over each socket tell of an entry: that is the
// wake-up, and the news of a side that has died. A full segment is followed by a new one and goes
// away when the last reader has gone on, so nothing is written over: there are no positions of
// readers to wait for or to believe, and one that stands still holds up nobody. No threads.
base::Result<std::unique_ptr<JournalWriter>> CreateSharedMemoryJournal(
    std::vector<FileDescriptor> sockets);
base::Result<std::unique_ptr<JournalReader>> OpenSharedMemoryJournal(FileDescriptor socket);

// All ends in this process, for tests.
base::Result<JournalEnds> CreateSharedMemoryJournalEnds(int readers);

}  // namespace longspan::comm
