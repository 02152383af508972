#include "apps/wiring.h"

#include <string>
#include <sys/socket.h>
#include <utility>

#include "apps/model_location.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/peak_probe.h"
#include "backend/cuda/copy_rate.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"
#include "comm/in_process/in_process.h"
#include "comm/shared_memory/shared_memory.h"
#include "comm/socket/socket.h"
#include "runtime/rank_process.h"

namespace longspan::apps {
namespace {

using Ranks = std::vector<std::unique_ptr<runtime::RankHandle>>;

// The inherited descriptors of one rank and the arguments that tell it their numbers.
struct ProcessConnections {
  std::vector<comm::FileDescriptor> descriptors;
  std::vector<std::string> arguments = {"rank"};

  void Add(const char* flag, comm::FileDescriptor descriptor) {
    arguments.emplace_back(flag);
    arguments.push_back(std::to_string(3 + descriptors.size()));
    descriptors.push_back(std::move(descriptor));
  }
};

// Through memory within a host, over TCP between hosts.
base::Result<std::unique_ptr<comm::Link>> CreateLink(int descriptor) {
  comm::FileDescriptor socket(descriptor);
  int family = AF_UNIX;
  socklen_t size = sizeof(family);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family != AF_UNIX)
    return comm::CreateSocketLink(std::move(socket));
  return comm::CreateSharedMemoryLink(std::move(socket));
}

}  // namespace

base::Result<const ops::Backend*> FindBackend(std::string_view name) {
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

base::Result<Ranks> StartRankThreads(const plan::PipelineShape& shape,
                                     const runtime::BackendFinder& find_backend) {
  const int stages = shape.ranks;
  std::vector<runtime::RankLinks> links(stages);
  std::vector<std::unique_ptr<comm::Channel>> leaders(stages);
  for (int stage = 0; stage < stages; ++stage) {
    std::tie(leaders[stage], links[stage].leader) = comm::CreateInProcessChannelPair();
    if (stage > 0)
      std::tie(links[stage - 1].next, links[stage].previous) = comm::CreateInProcessLinkPair();
  }
  if (shape.is_ring())
    std::tie(links.back().next, links.front().previous) = comm::CreateInProcessLinkPair();
  if (stages > 1)
    std::tie(links.back().tokens, links.front().tokens) = comm::CreateInProcessChannelPair();
  Ranks ranks;
  for (int stage = 0; stage < stages; ++stage)
    ranks.push_back(
        runtime::StartRankThread(std::move(leaders[stage]), std::move(links[stage]), find_backend));
  return ranks;
}

base::Result<Ranks> StartRankProcesses(const plan::PipelineShape& shape) {
  const int stages = shape.ranks;
  LONGSPAN_ASSIGN_OR_RETURN(const auto program, ProgramPath());
  std::vector<ProcessConnections> connections(stages);
  std::vector<std::unique_ptr<comm::Channel>> leaders(stages);
  for (int stage = 0; stage < stages; ++stage) {
    LONGSPAN_ASSIGN_OR_RETURN(auto control, comm::CreateSocketPair());
    connections[stage].Add("--leader", std::move(control.second));
    LONGSPAN_ASSIGN_OR_RETURN(leaders[stage], comm::CreateSocketChannel(std::move(control.first)));
    if (stage == 0 && !shape.is_ring()) continue;
    LONGSPAN_ASSIGN_OR_RETURN(auto residual, comm::CreateSocketPair());
    connections[(stage + stages - 1) % stages].Add("--next", std::move(residual.first));
    connections[stage].Add("--previous", std::move(residual.second));
  }
  if (stages > 1) {
    LONGSPAN_ASSIGN_OR_RETURN(auto tokens, comm::CreateSocketPair());
    connections.front().Add("--tokens", std::move(tokens.first));
    connections.back().Add("--tokens", std::move(tokens.second));
  }
  Ranks ranks;
  for (int stage = 0; stage < stages; ++stage) {
    LONGSPAN_ASSIGN_OR_RETURN(
        auto rank,
        runtime::StartRankProcess(std::move(leaders[stage]),
                                  {.program = program.string(),
                                   .arguments = std::move(connections[stage].arguments),
                                   .inherited = std::move(connections[stage].descriptors)}));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

base::Status ConnectRank(const RankDescriptors& descriptors, runtime::RankLinks& links) {
  LONGSPAN_ASSIGN_OR_RETURN(links.leader,
                            comm::CreateSocketChannel(comm::FileDescriptor(descriptors.leader)));
  if (descriptors.previous >= 0) {
    LONGSPAN_ASSIGN_OR_RETURN(links.previous, CreateLink(descriptors.previous));
  }
  if (descriptors.next >= 0) {
    LONGSPAN_ASSIGN_OR_RETURN(links.next, CreateLink(descriptors.next));
  }
  if (descriptors.tokens >= 0) {
    LONGSPAN_ASSIGN_OR_RETURN(links.tokens,
                              comm::CreateSocketChannel(comm::FileDescriptor(descriptors.tokens)));
  }
  return base::OkStatus();
}

base::Result<double> MeasureCopyRate(const ops::Backend& backend, tensor::Queue& queue) {
  if (backend.is_on_host()) return 0.0;
  return backend::cuda::MeasureCopyRate(queue);
}

PeakGflops MeasurePeakGflops(tensor::ThreadPool& pool) {
  const auto rate = backend::cpu::MeasurePeak(pool);
  return {rate.bf16_gflops, rate.f32_gflops};
}

}  // namespace longspan::apps
