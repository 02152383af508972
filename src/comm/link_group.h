// Groups of ranks over links.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/link.h"
#include "comm/rank_group.h"

namespace longspan::comm {

// A group whose ranks have a link between every two of them: peers[r] leads to rank r; the own one,
// peers[rank], is null. Every byte goes straight from the rank that has it to the one that needs
// it, so that an operation takes one step (a large AllReduce two), and a rank receives (size - 1) /
// size of what an AllGather or ReduceScatter is about, and twice that of an AllReduce.
//
// Groups may share links: those that do have different tags, below 2^15, and nobody else posts
// messages there. Closing one of them closes its links. The links stay their owner's and must
// outlive the group.
std::unique_ptr<RankGroup> CreateLinkGroup(std::vector<Link*> peers, int rank, uint64_t tag);

}  // namespace longspan::comm
