// What ranks send each other as it is.
#include "backend/cuda/peer_turn.cuh"

namespace longspan::backend::cuda {
namespace {

struct Gather {
  PeerWorld world;
  uint32_t signature;
  std::byte* all;
  Blocks blocks;
  uint32_t slices;
  int parts;  // blocks of threads that have one
};

__global__ void __launch_bounds__(kThreads) AllGatherKernel(const __grid_constant__ Gather p) {
  Turn turn(p.world, p.signature);
  if (turn.closed()) return;
  if (static_cast<int>(blockIdx.x) < p.parts) {
    for (uint32_t slice = 0; slice < p.slices; ++slice, ++turn.slice) {
      const int64_t first = slice * kPeerSliceBytes;
      const auto part_of = [&](int rank) {
        const int64_t size = p.blocks.size.of[rank];
        return PartBefore(size - first, min(kPeerSliceBytes, size), static_cast<int>(blockIdx.x),
                          p.parts, 128);
      };
      const auto place_of = [&](int rank) { return p.all + p.blocks.begin.of[rank] + first; };
      const int rank = p.world.rank;
      const Range own = part_of(rank);
      CopyBytes(turn.Window(rank) + own.begin, place_of(rank) + own.begin, own.size());
      if (!turn.Meet()) return;
      for (int i = 1; i < p.world.size; ++i) {
        const int peer = (rank + i) % p.world.size;
        const Range part = part_of(peer);
        CopyBytes(place_of(peer) + part.begin, turn.Window(peer) + part.begin, part.size());
      }
    }
  }
  turn.Finish(p.slices, p.slices);
}

struct Exchange {
  PeerWorld world;
  PeerMessages messages;

  __host__ __device__ int64_t segment() const { return kPeerSliceBytes / world.size / 256 * 256; }
  // What rank `from` has for rank `to` in a step.
  __device__ std::byte* Window(int from, int to, uint32_t step) const {
    return world.memory[from] + kPeerStateBytes + (2 + (step & 1)) * kPeerSliceBytes +
           to * segment();
  }
};

__device__ bool MeetPeer(const PeerWorld& world, int peer, uint32_t step, uint32_t signature) {
  __syncthreads();
  bool met = true;
  if (threadIdx.x == 0) {
    Signal(&StateOf(world, peer).pair_flags[step & 1][world.rank][blockIdx.x],
           static_cast<uint64_t>(step) << 32 | signature);
    met = Await(world, &StateOf(world, world.rank).pair_flags[step & 1][peer][blockIdx.x], step,
                signature);
  }
  return __syncthreads_and(met ? 1 : 0) != 0;
}

// Every two ranks by themselves: only they know how much they have for each other.
__global__ void __launch_bounds__(kThreads) AllToAllKernel(const __grid_constant__ Exchange p) {
  const auto peer = static_cast<int>(blockIdx.y);
  const int rank = p.world.rank;
  const std::byte* outgoing = p.messages.outgoing[peer];
  std::byte* incoming = p.messages.incoming[peer];
  const int64_t segment = p.segment();
  const auto part_of = [&](int64_t bytes, int64_t first) {
    return PartBefore(bytes - first, min(segment, bytes), static_cast<int>(blockIdx.x),
                      static_cast<int>(gridDim.x), 128);
  };
  if (peer == rank) {
    const Range part = PartOf({0, p.messages.outgoing_bytes[rank]}, static_cast<int>(blockIdx.x),
                              static_cast<int>(gridDim.x), 128);
    CopyBytes(incoming + part.begin, outgoing + part.begin, part.size());
    return;
  }
  PeerState& own = StateOf(p.world, rank);
  if (own.closed != 0) return;
  const int64_t longest = max(p.messages.outgoing_bytes[peer], p.messages.incoming_bytes[peer]);
  uint32_t step = own.pair_steps[peer][blockIdx.x];
  for (int64_t first = 0; first < longest; first += segment) {
    ++step;
    const Range sent = part_of(p.messages.outgoing_bytes[peer], first);
    CopyBytes(p.Window(rank, peer, step) + sent.begin, outgoing + first + sent.begin, sent.size());
    if (!MeetPeer(p.world, peer, step, p.messages.signatures[peer])) return;
    const Range got = part_of(p.messages.incoming_bytes[peer], first);
    CopyBytes(incoming + first + got.begin, p.Window(peer, rank, step) + got.begin, got.size());
  }
  __syncthreads();
  if (threadIdx.x == 0) own.pair_steps[peer][blockIdx.x] = step;
}

}  // namespace

void PeerAllGather(cudaStream_t stream, const PeerWorld& world, uint32_t signature, std::byte* all,
                   const PeerBlockSizes& sizes) {
  const int64_t largest = Largest(sizes, world.size);
  AllGatherKernel<<<kPeerBlocks, kThreads, 0, stream>>>(
      {world, signature, all, BlocksOf(sizes, world.size),
       static_cast<uint32_t>((largest + kPeerSliceBytes - 1) / kPeerSliceBytes),
       BlocksFor(std::min(largest, kPeerSliceBytes))});
}

void PeerAllToAll(cudaStream_t stream, const PeerWorld& world, const PeerMessages& messages) {
  const int blocks = std::clamp(kPeerBlocks / world.size, 4, kMostPairBlocks);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(world.size));
  AllToAllKernel<<<grid, kThreads, 0, stream>>>({world, messages});
}

cudaError_t LoadPeerExchanges() { return LoadKernels(AllGatherKernel, AllToAllKernel); }

}  // namespace longspan::backend::cuda
