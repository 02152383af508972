// What ranks on GPUs of one host do together, as kernels that copy through each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "tensor/dtype.h"

namespace longspan::backend::cuda {

constexpr int kMostPeerRanks = 16;
// Few, so that other kernels run beside them; enough for the wires.
constexpr int kPeerBlocks = 32;
constexpr int kMostPairBlocks = 16;
// What passes through a window at once. Larger operations take several slices.
constexpr int64_t kPeerSliceBytes = int64_t{8} << 20;

// What every rank has in its GPU's memory for the others, in front of its windows. A flag is a step
// and the signature of its operation: ranks that do not agree on it find out. There are two of
// each, for steps in turn: nobody is more than one step ahead of a rank that it waits for.
struct PeerState {
  uint64_t group_flags[2][kMostPeerRanks][kPeerBlocks];     // from a rank's block
  uint64_t pair_flags[2][kMostPeerRanks][kMostPairBlocks];  // in exchanges of two ranks
  // Its own, which count where it stands. They are here and not on the host since recorded
  // operations are repeated.
  uint32_t group_steps[kPeerBlocks];
  uint32_t group_slices[kPeerBlocks];
  uint32_t pair_steps[kMostPeerRanks][kMostPairBlocks];
  uint32_t closed;  // nothing begins any more
};

// In pinned memory: what the host tells kernels that wait, and they the host.
struct PeerControl {
  uint32_t closed;   // by the host: leave
  uint32_t left;     // by a kernel: it has not waited to the end
  uint32_t differs;  // by a kernel: another rank has posted something else
};

// The memory of a rank: its state, two windows for operations of the group, and two more that are
// divided by the rank that reads there, for exchanges of two.
constexpr int64_t kPeerStateBytes = int64_t{64} << 10;
static_assert(sizeof(PeerState) <= kPeerStateBytes);
constexpr int64_t kPeerMemoryBytes = kPeerStateBytes + 4 * kPeerSliceBytes;

struct PeerWorld {
  int rank;
  int size;
  std::byte* memory[kMostPeerRanks];  // of every rank, as this process sees it
  PeerControl* control;
};

// The operations of comm::RankGroup; `signature` is the same at all ranks. Blocks of an operation
// meet those of the other ranks one to one.

// Two steps (every rank sums its share, then all gather) or one. `data` is f32 or bf16.
void PeerAllReduce(cudaStream_t stream, const PeerWorld& world, uint32_t signature,
                   tensor::DType type, void* data, int64_t count, bool two_steps);

struct PeerBlockSizes {
  int64_t of[kMostPeerRanks];  // elements, or bytes
};
void PeerReduceScatter(cudaStream_t stream, const PeerWorld& world, uint32_t signature,
                       tensor::DType type, void* data, const PeerBlockSizes& counts);
// Blocks of these sizes one after the other; a broadcast has one.
void PeerAllGather(cudaStream_t stream, const PeerWorld& world, uint32_t signature, std::byte* all,
                   const PeerBlockSizes& sizes);

struct PeerMessages {
  const std::byte* outgoing[kMostPeerRanks];
  int64_t outgoing_bytes[kMostPeerRanks];
  std::byte* incoming[kMostPeerRanks];
  int64_t incoming_bytes[kMostPeerRanks];
  uint32_t signatures[kMostPeerRanks];  // of a pair
};
void PeerAllToAll(cudaStream_t stream, const PeerWorld& world, const PeerMessages& messages);

// Bring the kernels to the device: that must not happen while others wait there.
cudaError_t LoadPeerSums();
cudaError_t LoadPeerExchanges();

}  // namespace longspan::backend::cuda
