// How ranks are arranged. Every coordinate derives from one Mesh value and one rank number.
#pragma once

#include "base/status.h"

namespace longspan::spec {

// ranks = pp x dp x cp x tp, numbered with tp innermost; experts are divided over ep ranks of a
// stage (ep divides dp x cp x tp). dp is reserved: only 1 is accepted for now.
struct Mesh {
  int pp = 1;
  int dp = 1;
  int cp = 1;
  int tp = 1;
  int ep = 1;

  constexpr int stage_ranks() const { return dp * cp * tp; }
  constexpr int ranks() const { return pp * stage_ranks(); }
  constexpr int stage_of(int rank) const { return rank / stage_ranks(); }
  constexpr int tp_rank_of(int rank) const { return rank % tp; }
  constexpr int cp_rank_of(int rank) const { return rank / tp % cp; }

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// Refuses sizes below 1, an ep that does not divide a stage, and the axes that are not built yet.
base::Status CheckMesh(const Mesh& mesh);

}  // namespace longspan::spec
