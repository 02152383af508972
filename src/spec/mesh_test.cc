#include "spec/mesh.h"

#include <algorithm>
#include <functional>
#include <set>

#include <gmock/gmock.h>

namespace longspan::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MeshTest, TpIsInnermostAndStagesAreOutermost) {
  constexpr Mesh kMesh{.pp = 2, .cp = 3, .tp = 2};
  static_assert(kMesh.ranks() == 12);
  EXPECT_EQ(kMesh.stage_of(5), 0);
  EXPECT_EQ(kMesh.stage_of(6), 1);
  EXPECT_EQ(kMesh.tp_rank_of(7), 1);
  EXPECT_EQ(kMesh.cp_rank_of(7), 0);
  EXPECT_EQ(kMesh.cp_rank_of(11), 2);
  EXPECT_EQ(kMesh.lane_of(11), 5);
  EXPECT_EQ(kMesh.reporting_rank(), 6);
}

TEST(MeshTest, GroupsOfOneStage) {
  constexpr Mesh kMesh{.pp = 2, .cp = 3, .tp = 2, .ep = 3};
  EXPECT_THAT(TensorLanes(kMesh, 9), ElementsAre(2, 3));
  EXPECT_THAT(ContextLanes(kMesh, 9), ElementsAre(1, 3, 5));
  EXPECT_THAT(ExpertLanes(kMesh, 9), ElementsAre(3, 4, 5));
}

// All meshes with sizes up to 4 on every axis.
void ForAllMeshes(const std::function<void(const Mesh&)>& function) {
  for (int pp = 1; pp <= 4; ++pp)
    for (int dp = 1; dp <= 4; ++dp)
      for (int cp = 1; cp <= 4; ++cp)
        for (int tp = 1; tp <= 4; ++tp)
          for (int ep = 1; ep <= dp * cp * tp; ++ep)
            if (dp * cp * tp % ep == 0)
              function({.pp = pp, .dp = dp, .cp = cp, .tp = tp, .ep = ep});
}

TEST(MeshTest, CoordinatesNameARank) {
  ForAllMeshes([](const Mesh& mesh) {
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      EXPECT_EQ(mesh.rank_of(mesh.stage_of(rank), mesh.lane_of(rank)), rank);
      const int lane = (mesh.dp_rank_of(rank) * mesh.cp + mesh.cp_rank_of(rank)) * mesh.tp +
                       mesh.tp_rank_of(rank);
      EXPECT_EQ(mesh.lane_of(rank), lane);
    }
    EXPECT_EQ(mesh.stage_of(mesh.reporting_rank()), mesh.pp - 1);
  });
}

// A partition of the stage's lanes in which a rank stands at its place.
void ExpectGroups(const Mesh& mesh, int size, std::vector<int> (*lanes_of)(const Mesh&, int),
                  int (Mesh::*place_of)(int) const) {
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int> lanes = lanes_of(mesh, rank);
    ASSERT_EQ(lanes.size(), static_cast<size_t>(size));
    EXPECT_TRUE(std::is_sorted(lanes.begin(), lanes.end()));
    EXPECT_EQ(lanes[static_cast<size_t>((mesh.*place_of)(rank))], mesh.lane_of(rank));
    for (const int lane : lanes) {
      ASSERT_LT(lane, mesh.stage_ranks());
      EXPECT_EQ(lanes_of(mesh, mesh.rank_of(mesh.stage_of(rank), lane)), lanes);
    }
  }
}

TEST(MeshTest, GroupsPartitionAStage) {
  ForAllMeshes([](const Mesh& mesh) {
    ExpectGroups(mesh, mesh.tp, TensorLanes, &Mesh::tp_rank_of);
    ExpectGroups(mesh, mesh.cp, ContextLanes, &Mesh::cp_rank_of);
    ExpectGroups(mesh, mesh.ep, ExpertLanes, &Mesh::ep_rank_of);
    for (int lane = 0; lane < mesh.stage_ranks(); ++lane) {
      std::set<int> both;
      for (const int tensor : TensorLanes(mesh, lane))
        for (const int context : ContextLanes(mesh, tensor)) both.insert(context);
      EXPECT_EQ(both.size(), static_cast<size_t>(mesh.cp * mesh.tp));
    }
  });
}

TEST(MeshTest, NamesOfRanks) {
  EXPECT_EQ(RankName({.pp = 3}, 2), "stage 2");
  EXPECT_EQ(RankName({.pp = 2, .tp = 2}, 3), "rank 3 (stage 1)");
}

TEST(MeshTest, RefusesWhatIsNotBuiltOrDoesNotDivide) {
  EXPECT_TRUE(CheckMesh({.pp = 4, .cp = 3, .tp = 2}).ok());
  EXPECT_EQ(CheckMesh({.pp = 0}).code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckMesh({.tp = 4, .ep = 3}).message(),
            "--ep-size 3 must divide cp x tp = 4, and either divide tp = 4 or be a multiple of it: "
            "use --ep-size 2");
  EXPECT_THAT(CheckMesh({.cp = 2, .tp = 3, .ep = 2}).message(), HasSubstr("use --ep-size 1"));
  EXPECT_TRUE(CheckMesh({.tp = 4, .ep = 2}).ok());
  EXPECT_TRUE(CheckMesh({.cp = 2, .tp = 2, .ep = 4}).ok());
  EXPECT_EQ(CheckMesh({.tp = 65}).code(), base::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longspan::spec
