#include "apps/wiring.h"

#include <map>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <utility>

#include "apps/emulation.h"
#include "apps/node_line.h"
#include "apps/node_ranks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/peak_probe.h"
#include "backend/cuda/copy_rate.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/peer_group.h"
#include "backend/cuda/peer_memory.h"
#include "backend/emulated/emulated_backend.h"
#include "backend/reference/reference_backend.h"
#include "comm/in_process/in_process.h"
#include "comm/peer_copy/peer_link.h"
#include "comm/shared_memory/shared_memory.h"
#include "comm/socket/socket.h"
#include "runtime/rank_log.h"

namespace longspan::apps {
namespace {

using Ranks = std::vector<std::unique_ptr<runtime::RankHandle>>;

bool LeadsToAnotherHost(int descriptor) {
  int family = AF_UNIX;
  socklen_t size = sizeof(family);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family != AF_UNIX;
}

base::Result<std::unique_ptr<comm::Channel>> CreateChannel(int descriptor) {
  const bool far = LeadsToAnotherHost(descriptor);
  LONGSPAN_ASSIGN_OR_RETURN(auto channel,
                            comm::CreateSocketChannel(comm::FileDescriptor(descriptor)));
  return far ? DelayedLine(std::move(channel)) : std::move(channel);
}

// Through memory within a host, over TCP between hosts.
base::Result<std::unique_ptr<comm::Link>> CreateLink(int descriptor) {
  if (!LeadsToAnotherHost(descriptor))
    return comm::CreateSharedMemoryLink(comm::FileDescriptor(descriptor));
  LONGSPAN_ASSIGN_OR_RETURN(auto link, comm::CreateSocketLink(comm::FileDescriptor(descriptor)));
  return DelayedLine(std::move(link));
}

// A backend for each rank of this process; like others they live as long as it does.
base::Result<const ops::Backend*> FindEmulated(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<ops::Backend>, std::less<>> backends;
  const std::lock_guard lock(mutex);
  const auto found = backends.find(name);
  if (found != backends.end()) return found->second.get();
  LONGSPAN_ASSIGN_OR_RETURN(EmulatedRank rank, ReadEmulatedRank(name));
  auto backend = backend::emulated::CreateEmulatedBackend({.layer_s = std::move(rank.layer_s),
                                                           .head_s = std::move(rank.head_s),
                                                           .rows_divided = rank.rows_divided});
  return backends.emplace(name, std::move(backend)).first->second.get();
}

}  // namespace

base::Result<const ops::Backend*> FindBackend(std::string_view name) {
  if (IsEmulated(name)) return FindEmulated(name);
  if (name == "reference") return &backend::reference::ReferenceBackend();
  if (name == "cuda") return backend::cuda::CudaBackend();
  if (name == "auto" && WhyNoGpu().empty()) return backend::cuda::CudaBackend();
  if (name == "cpu" || name == "auto") return &backend::cpu::CpuBackend();
  return base::Unimplemented("the backend '{}' is not built: use cpu or reference", name);
}

std::string WhyNoGpu() {
  const auto cuda = backend::cuda::CudaBackend();
  return cuda.ok() ? std::string() : cuda.status().message();
}

bool HasGpuBackend() { return backend::cuda::CudaIsBuilt(); }

RankEnds ConnectInProcess(const RankLayout& layout) {
  const spec::Mesh& mesh = layout.mesh;
  const int ranks = mesh.ranks();
  const int lanes = mesh.stage_ranks();
  RankEnds ends;
  ends.links.resize(static_cast<size_t>(ranks));
  ends.leaders.resize(static_cast<size_t>(ranks));
  auto& links = ends.links;
  for (int rank = 0; rank < ranks; ++rank) {
    links[rank].make_device_group = backend::cuda::CreatePeerGroup;
    std::tie(ends.leaders[rank], links[rank].leader) = comm::CreateInProcessChannelPair();
    const int before = (rank - lanes + ranks) % ranks;
    if (rank >= lanes || layout.is_ring())
      std::tie(links[before].next, links[rank].previous) = comm::CreateInProcessLinkPair();
    // A rank's lower lanes come first, since these have had their turn.
    for (int peer = rank + 1; mesh.stage_of(peer) == mesh.stage_of(rank); ++peer) {
      auto [here, there] = comm::CreateInProcessLinkPair();
      links[rank].stage_peers.push_back(std::move(here));
      links[peer].stage_peers.push_back(std::move(there));
    }
  }
  for (int lane = 0; lane < lanes && mesh.pp > 1; ++lane)
    std::tie(links[mesh.rank_of(mesh.pp - 1, lane)].tokens, links[lane].tokens) =
        comm::CreateInProcessChannelPair();
  return ends;
}

base::Result<Ranks> StartRankThreads(const RankLayout& layout,
                                     const runtime::BackendFinder& find_backend) {
  RankEnds ends = ConnectInProcess(layout);
  const size_t count = ends.links.size();
  comm::JournalEnds log;
  if (count > 1) {
    log = comm::CreateInProcessJournal(static_cast<int>(count));
    for (size_t rank = 0; rank < count; ++rank)
      ends.links[rank].plans = std::move(log.readers[rank]);
  }
  Ranks ranks;
  for (size_t rank = 0; rank < count; ++rank)
    ranks.push_back(runtime::StartRankThread(std::move(ends.leaders[rank]),
                                             std::move(ends.links[rank]), find_backend));
  return runtime::ShareLog(std::move(ranks), std::move(log.writer));
}

base::Result<Ranks> StartRankProcesses(const RankLayout& layout) {
  return StartShare(
      {0, layout.mesh.pp},
      {.stages = layout.mesh.pp, .lanes = layout.mesh.stage_ranks(), .ring = layout.is_ring()}, {},
      {});
}

base::Status ConnectRank(const RankDescriptors& descriptors, runtime::RankLinks& links) {
  links.make_device_group = backend::cuda::CreatePeerGroup;
  LONGSPAN_ASSIGN_OR_RETURN(links.leader, CreateChannel(descriptors.leader));
  if (descriptors.previous >= 0) {
    LONGSPAN_ASSIGN_OR_RETURN(links.previous, CreateLink(descriptors.previous));
  }
  if (descriptors.next >= 0) {
    LONGSPAN_ASSIGN_OR_RETURN(links.next, CreateLink(descriptors.next));
  }
  for (const int descriptor : descriptors.stage_peers) {
    LONGSPAN_ASSIGN_OR_RETURN(auto peer, CreateLink(descriptor));
    links.stage_peers.push_back(std::move(peer));
  }
  if (descriptors.tokens >= 0) {
    LONGSPAN_ASSIGN_OR_RETURN(links.tokens, CreateChannel(descriptors.tokens));
  }
  if (descriptors.plans >= 0) {
    LONGSPAN_ASSIGN_OR_RETURN(
        links.plans, comm::OpenSharedMemoryJournal(comm::FileDescriptor(descriptors.plans)));
  }
  if (descriptors.relay.empty()) return base::OkStatus();
  std::vector<comm::FileDescriptor> readers;
  for (const int descriptor : descriptors.relay) readers.emplace_back(descriptor);
  LONGSPAN_ASSIGN_OR_RETURN(links.relay, comm::CreateSharedMemoryJournal(std::move(readers)));
  return base::OkStatus();
}

base::Status ConnectPeers(const runtime::RankConfig& config, runtime::RankLinks& links) {
  if (!config.previous_by_peer_copy && !config.next_by_peer_copy) return base::OkStatus();
  LONGSPAN_ASSIGN_OR_RETURN(links.peer_memory, backend::cuda::CreatePeerMemory(config.device));
  if (config.previous_by_peer_copy)
    links.previous = comm::CreatePeerLink(std::move(links.previous), *links.peer_memory);
  if (config.next_by_peer_copy)
    links.next = comm::CreatePeerLink(std::move(links.next), *links.peer_memory);
  return base::OkStatus();
}

int VisibleGpus() { return backend::cuda::VisibleDevices(); }

std::string GpuName(int gpu) { return backend::cuda::DeviceName(gpu); }

bool CanCopyBetweenGpus(int from, int to) { return backend::cuda::CanCopyBetween(from, to); }

base::Result<double> MeasureCopyRate(const ops::Backend& backend, tensor::Queue& queue) {
  if (backend.is_on_host()) return 0.0;
  return backend::cuda::MeasureCopyRate(queue);
}

PeakGflops MeasurePeakGflops(tensor::ThreadPool& pool) {
  const auto rate = backend::cpu::MeasurePeak(pool);
  return {rate.bf16_gflops, rate.f32_gflops};
}

}  // namespace longspan::apps
