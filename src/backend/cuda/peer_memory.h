// GPU memory that ranks of one host copy into, from GPU to GPU.
#pragma once

#include <memory>

#include "base/result.h"
#include "comm/peer_memory.h"

namespace longspan::backend::cuda {

// Whether GPU `from` can write to the memory of GPU `to`, by numbers as this process sees them; a
// GPU can to its own. False too where the program was built without CUDA. No context is made.
bool CanCopyBetween(int from, int to);

// How many GPUs this process sees; none where the program was built without CUDA. No context is
// made.
int VisibleDevices();

// The memory of `device` in this process. Copies are made by its copy engines, on a stream of their
// own, beside kernels. Peers are other processes (through CUDA's IPC handles) or this one.
base::Result<std::unique_ptr<comm::PeerMemory>> CreatePeerMemory(int device);

}  // namespace longspan::backend::cuda
