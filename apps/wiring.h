// The only place that names concrete backends and transports.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "runtime/rank_handle.h"
#include "runtime/rank_links.h"
#include "spec/mesh.h"
#include "tensor/thread_pool.h"

namespace longspan::apps {

// The backend of that name; "auto" is the best that this machine has.
base::Result<const ops::Backend*> FindBackend(std::string_view name);

// Why "auto" takes no GPU; empty where it does.
std::string WhyNoGpu();
// Whether this program was built for GPUs at all.
bool HasGpuBackend();

// Which ranks there are. Every lane of the stages is connected in a row and back, and with looped
// stages in a ring; the ranks of a stage are connected every two.
struct RankLayout {
  spec::Mesh mesh;
  int loops = 1;

  bool is_ring() const { return mesh.pp > 1 && loops > 1; }
};

// The ends of all connections but the step log, within this process, by rank.
struct RankEnds {
  std::vector<runtime::RankLinks> links;
  std::vector<std::unique_ptr<comm::Channel>> leaders;  // the leader's ends
};
RankEnds ConnectInProcess(const RankLayout& layout);

// The ranks in order: threads of this process (tests may bring a backend of their own), or
// processes of this program.
base::Result<std::vector<std::unique_ptr<runtime::RankHandle>>> StartRankThreads(
    const RankLayout& layout, const runtime::BackendFinder& find_backend = FindBackend);
base::Result<std::vector<std::unique_ptr<runtime::RankHandle>>> StartRankProcesses(
    const RankLayout& layout);

// The descriptors that a rank process got from its parent; -1 for one that it lacks.
struct RankDescriptors {
  int leader = -1;
  int previous = -1;
  int next = -1;
  int tokens = -1;
  std::vector<int> stage_peers;  // to the other ranks of the stage, in order
  int plans = -1;                // the log of its node
  std::vector<int> relay;        // to the readers of that log, where this rank writes it
};
// Makes them into connections, the leader's first: where another one fails, the leader can be told.
base::Status ConnectRank(const RankDescriptors& descriptors, runtime::RankLinks& links);

// Lets the residual stream of the links that the configuration names pass from GPU to GPU.
base::Status ConnectPeers(const runtime::RankConfig& config, runtime::RankLinks& links);

// How many GPUs this process sees.
int VisibleGpus();
// Of one of them; empty where it cannot be told.
std::string GpuName(int gpu);
// Whether ranks of one host with these GPUs can do so.
bool CanCopyBetweenGpus(int from, int to);

// Bytes per second, read and written ones together, of copies within the device of the queue; 0 for
// a host.
base::Result<double> MeasureCopyRate(const ops::Backend& backend, tensor::Queue& queue);

// The machine's bf16 and f32 peak with those threads, in GFLOP/s, measured now.
struct PeakGflops {
  double bf16 = 0;
  double f32 = 0;
};
PeakGflops MeasurePeakGflops(tensor::ThreadPool& pool);

}  // namespace longspan::apps
