// Groups of ranks whose buffers are in the memory of GPUs of one host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/link.h"
#include "comm/rank_group.h"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

// A group for `queue`, one of this backend, over links as comm::CreateLinkGroup takes them; the
// other ranks make theirs at the same time, since they tell each other where their windows are. Up
// to 16 ranks. Links and queue must outlive it. `tag` is below 2^14 and no other group's there.
//
// Every rank has windows in its GPU's memory that the others map (CUDA IPC between processes). An
// operation is one kernel: it copies what the others need into its window, sets a flag in their
// memory, waits for theirs, and reads theirs. Sums are taken from all windows in the order of the
// ranks. Kernels are queued and nobody on the host waits: AllGather and AllToAll on a stream of the
// group's own, beside what the queue computes until Wait; the others on the queue's. They may be
// recorded and repeated, if the ranks are processes of their own. Ranks may share a GPU, which then
// takes turns between their processes; ranks that are threads of one process wait for each other on
// the host before and after an operation is queued, since what one of them does with the device
// meanwhile might wait for a kernel that waits for another.
//
// A kernel looks at a word of the host while it waits. The end of a link sets it, as Close does:
// the kernels then leave, and Queue::Synchronize tells why. That another rank has posted another
// operation or size is found where the flags meet.
//
// InvalidArgument where the GPUs cannot reach each other's memory.
base::Result<std::unique_ptr<comm::RankGroup>> CreatePeerGroup(tensor::Queue& queue,
                                                               std::vector<comm::Link*> peers,
                                                               int rank, uint64_t tag);

}  // namespace longspan::backend::cuda
