#include "spec/mesh.h"

#include <algorithm>

#include <fmt/format.h>

namespace longspan::spec {
namespace {

// `count` lanes from `first` on, `stride` apart.
std::vector<int> Lanes(int first, int count, int stride) {
  std::vector<int> lanes;
  for (int i = 0; i < count; ++i) lanes.push_back(first + i * stride);
  return lanes;
}

}  // namespace

std::vector<int> TensorLanes(const Mesh& mesh, int rank) {
  return Lanes(mesh.lane_of(rank) - mesh.tp_rank_of(rank), mesh.tp, 1);
}

std::vector<int> ContextLanes(const Mesh& mesh, int rank) {
  return Lanes(mesh.lane_of(rank) - mesh.cp_rank_of(rank) * mesh.tp, mesh.cp, mesh.tp);
}

std::vector<int> ExpertLanes(const Mesh& mesh, int rank) {
  return Lanes(mesh.lane_of(rank) - mesh.ep_rank_of(rank), mesh.ep, 1);
}

std::string RankName(const Mesh& mesh, int rank) {
  const int stage = mesh.stage_of(rank);
  return mesh.stage_ranks() == 1 ? fmt::format("stage {}", stage)
                                 : fmt::format("rank {} (stage {})", rank, stage);
}

bool DividesStage(const Mesh& mesh, int ep) {
  return mesh.stage_ranks() % ep == 0 && (mesh.tp % ep == 0 || ep % mesh.tp == 0);
}

base::Status CheckMesh(const Mesh& mesh) {
  if (mesh.pp < 1 || mesh.dp < 1 || mesh.cp < 1 || mesh.tp < 1 || mesh.ep < 1)
    return base::InvalidArgument("every parallel size must be at least 1");
  if (!DividesStage(mesh, mesh.ep)) {
    int fitting = std::min(mesh.ep, mesh.stage_ranks());
    while (!DividesStage(mesh, fitting)) --fitting;
    return base::InvalidArgument(
        "--ep-size {} must divide cp x tp = {}, and either divide tp = {} or be a multiple of it: "
        "use --ep-size {}",
        mesh.ep, mesh.stage_ranks(), mesh.tp, fitting);
  }
  constexpr int kMostStageRanks = 64;  // each has a connection to every other
  if (mesh.stage_ranks() > kMostStageRanks)
    return base::InvalidArgument("a stage has at most {} ranks, not cp x tp = {}", kMostStageRanks,
                                 mesh.stage_ranks());
  if (mesh.dp != 1) return base::Unimplemented("data parallelism is not built yet");
  return base::OkStatus();
}

}  // namespace longspan::spec
