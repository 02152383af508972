// How ranks are arranged. Every coordinate and every group of a rank derives from one Mesh value
// and the rank's number by the functions here.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace longspan::spec {

// ranks = pp x dp x cp x tp, numbered with tp innermost; experts are divided over ep ranks of a
// stage (ep divides dp x cp x tp). dp is reserved: only 1 is accepted for now.
//
// The ranks of a stage are its lanes, numbered from 0. A lane of a stage passes its residual stream
// to the same lane of the next stage.
struct Mesh {
  int pp = 1;
  int dp = 1;
  int cp = 1;
  int tp = 1;
  int ep = 1;

  constexpr int stage_ranks() const { return dp * cp * tp; }
  constexpr int ranks() const { return pp * stage_ranks(); }

  // Coordinates of a rank.
  constexpr int stage_of(int rank) const { return rank / stage_ranks(); }
  constexpr int lane_of(int rank) const { return rank % stage_ranks(); }
  constexpr int tp_rank_of(int rank) const { return rank % tp; }
  constexpr int cp_rank_of(int rank) const { return rank / tp % cp; }
  constexpr int dp_rank_of(int rank) const { return rank / (tp * cp) % dp; }
  // Consecutive lanes share the experts among themselves.
  constexpr int ep_rank_of(int rank) const { return lane_of(rank) % ep; }

  constexpr int rank_of(int stage, int lane) const { return stage * stage_ranks() + lane; }
  // The rank that speaks for the pipeline: it reports what was sampled.
  constexpr int reporting_rank() const { return rank_of(pp - 1, 0); }

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// The lanes of a rank's group, itself among them, in ascending order: its place there is its rank
// on that axis. Groups never reach over a stage's borders.
std::vector<int> TensorLanes(const Mesh& mesh, int rank);   // differ in tp only
std::vector<int> ContextLanes(const Mesh& mesh, int rank);  // differ in cp only
std::vector<int> ExpertLanes(const Mesh& mesh, int rank);   // have all experts among them

// What messages call a rank: "stage 1", or where stages have several ranks "rank 3 (stage 1)".
std::string RankName(const Mesh& mesh, int rank);

// Whether the experts can be divided over groups of `ep` lanes: they fill a stage, and each is a
// part of a tensor-parallel group or several whole ones.
bool DividesStage(const Mesh& mesh, int ep);

// Refuses sizes below 1, an ep that does not divide a stage, and the axes that are not built yet.
base::Status CheckMesh(const Mesh& mesh);

}  // namespace longspan::spec
