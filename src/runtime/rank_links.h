// A rank's connections.
#pragma once

#include <memory>

#include "comm/channel.h"
#include "comm/link.h"
#include "comm/peer_memory.h"

namespace longspan::runtime {

struct RankLinks {
  // What links between GPUs copy with; null where there are none.
  std::unique_ptr<comm::PeerMemory> peer_memory;
  std::unique_ptr<comm::Channel> leader;
  // From the stage before and to the stage after. With looped stages they make a ring: before the
  // first comes the last; else these two are null.
  std::unique_ptr<comm::Link> previous;
  std::unique_ptr<comm::Link> next;
  std::unique_ptr<comm::Channel> tokens;  // from the last stage to the first, at these two; null
                                          // elsewhere and where there is only one stage

  // Ends every connection: whoever waits on one, here or at the other end, wakes up.
  void Close() const {
    if (leader != nullptr) leader->Close();
    if (previous != nullptr) previous->Close();
    if (next != nullptr) next->Close();
    if (tokens != nullptr) tokens->Close();
  }
};

}  // namespace longspan::runtime
