// A rank's connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/channel.h"
#include "comm/journal.h"
#include "comm/link.h"
#include "comm/peer_memory.h"
#include "comm/rank_group.h"
#include "tensor/execution_context.h"

namespace longspan::runtime {

// Makes a rank's end of a group whose buffers are in the memory of a queue's device, over links as
// comm::CreateLinkGroup takes them.
using DeviceGroupMaker = std::function<base::Result<std::unique_ptr<comm::RankGroup>>(
    tensor::Queue& queue, std::vector<comm::Link*> peers, int rank, uint64_t tag)>;

struct RankLinks {
  // Null where all memory is the host's.
  DeviceGroupMaker make_device_group;
  // What links between GPUs copy with; null where there are none.
  std::unique_ptr<comm::PeerMemory> peer_memory;
  std::unique_ptr<comm::Channel> leader;
  // The step log of the node; null: plans come over `leader`.
  std::unique_ptr<comm::JournalReader> plans;
  // Where the leader is on another host, at the first rank of the node: plans come over `leader`
  // and are written here, for itself and the others.
  std::unique_ptr<comm::JournalWriter> relay;
  // From the same lane of the stage before and to that of the stage after. With looped stages they
  // make a ring: before the first comes the last; else these two are null.
  std::unique_ptr<comm::Link> previous;
  std::unique_ptr<comm::Link> next;
  // To the other ranks of the stage, in the order of their lanes.
  std::vector<std::unique_ptr<comm::Link>> stage_peers;
  // From the last stage to the same lane of the first, at these two; null elsewhere and where there
  // is only one stage.
  std::unique_ptr<comm::Channel> tokens;

  // Ends every connection: whoever waits on one, here or at the other end, wakes up.
  void Close() const {
    if (leader != nullptr) leader->Close();
    if (plans != nullptr) plans->Close();
    if (relay != nullptr) relay->Close();
    if (previous != nullptr) previous->Close();
    if (next != nullptr) next->Close();
    for (const auto& peer : stage_peers) peer->Close();
    if (tokens != nullptr) tokens->Close();
  }
};

}  // namespace longspan::runtime
