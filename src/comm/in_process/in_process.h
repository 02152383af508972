// Channels, links and journals between threads of one process.
#pragma once

#include "comm/channel.h"
#include "comm/journal.h"
#include "comm/link.h"

namespace longspan::comm {

// Two connected ends. A frame goes to the peer's queue by hand-over, without a copy; the limits
// hold for each of the two queues.
ChannelPair CreateInProcessChannelPair(ChannelLimits limits = {});

// Two connected ends. Bytes are copied by the thread that posts the later of send and receive. No
// thread is started.
LinkPair CreateInProcessLinkPair();

// A journal whose readers share the entries.
JournalEnds CreateInProcessJournal(int readers);

}  // namespace longspan::comm
