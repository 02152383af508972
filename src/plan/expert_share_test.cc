#include "plan/expert_share.h"

#include <map>
#include <set>

#include <gmock/gmock.h>

#include "plan/tensor_share.h"

namespace longspan::plan {
namespace {

using spec::Mesh;
using testing::HasSubstr;

spec::ModelSpec WithExperts(int experts) {
  return {.moe = {.experts = experts, .experts_per_token = 2, .intermediate_size = 240},
          .feed_forward = {spec::FeedForwardKind::kDense, spec::FeedForwardKind::kMoe}};
}

// Every mesh of one stage whose sizes divide.
std::vector<Mesh> Meshes() {
  std::vector<Mesh> meshes;
  for (int cp = 1; cp <= 4; ++cp)
    for (int tp = 1; tp <= 8; ++tp)
      for (int ep = 1; ep <= cp * tp; ++ep)
        if (const Mesh mesh{.cp = cp, .tp = tp, .ep = ep}; spec::DividesStage(mesh, ep))
          meshes.push_back(mesh);
  return meshes;
}

// What the sum over tensor-parallel ranks adds up for a row is every column of every expert, once:
// a row is sent by one lane of each of the groups that its lanes belong to, and these have
// different pieces of the columns.
TEST(ExpertShareTest, EveryRowMeetsEveryColumnOfEveryExpertOnce) {
  constexpr int kPositions = 50;
  for (const Mesh& mesh : Meshes()) {
    for (int cp = 0; cp < mesh.cp; ++cp) {
      std::map<int, std::set<int>> pieces;  // by position
      for (int tp = 0; tp < mesh.tp; ++tp) {
        const int rank = cp * mesh.tp + tp;
        const ExpertShare share = ExpertShareOf(mesh, rank);
        const int piece = TensorShare{tp, mesh.tp}.PieceOf(share.column_parts);
        for (const int lane : spec::ExpertLanes(mesh, rank))
          EXPECT_EQ(TensorShare({mesh.tp_rank_of(lane), mesh.tp}).PieceOf(share.column_parts),
                    piece);
        for (int position = 0; position < kPositions; ++position) {
          if (!share.Sends(position)) continue;
          EXPECT_TRUE(pieces[position].insert(piece).second);
        }
      }
      const auto parts = static_cast<size_t>(ExpertShareOf(mesh, 0).column_parts);
      for (int position = 0; position < kPositions; ++position)
        EXPECT_EQ(pieces[position].size(), parts) << mesh.cp << mesh.tp << mesh.ep;
    }
  }
}

TEST(ExpertShareTest, ExpertsAndColumnsAreAllThere) {
  for (const Mesh& mesh : Meshes()) {
    const int experts = 3 * mesh.ep;
    int next = 0;
    for (const int lane : spec::ExpertLanes(mesh, 0)) {
      const ExpertShare share = ExpertShareOf(mesh, lane);
      EXPECT_EQ(share.first(experts), next);
      next += share.count(experts);
      EXPECT_EQ(share.ColumnsOf(240 / mesh.tp) * share.column_parts, 240 / mesh.tp * mesh.tp);
      EXPECT_EQ(share.row_sources() * share.row_parts, mesh.ep);
    }
    EXPECT_EQ(next, experts);
  }
}

// Also of tokens that are divided by their positions already.
TEST(ExpertShareTest, RowsAreSharedOutEvenly) {
  for (const int stride : {1, 2, 4}) {
    const Mesh mesh{.tp = 4, .ep = 4};
    for (int rank = 0; rank < 4; ++rank) {
      int rows = 0;
      for (int i = 0; i < 8192; ++i) rows += ExpertShareOf(mesh, rank).Sends(i * stride) ? 1 : 0;
      EXPECT_NEAR(rows, 2048, 120);
    }
  }
}

TEST(ExpertShareTest, RefusalsNameWhatWouldDo) {
  const auto check = [](const spec::ModelSpec& model, const Mesh& mesh) {
    return CheckExpertShares(model, mesh);
  };
  EXPECT_TRUE(check(WithExperts(12), {.tp = 6, .ep = 6}).ok());
  EXPECT_EQ(check(WithExperts(12), {.tp = 8, .ep = 8}).message(),
            "--ep-size 8 does not divide the 12 experts: use --ep-size 4");
  spec::ModelSpec dense = WithExperts(0);
  dense.feed_forward = {spec::FeedForwardKind::kDense};
  EXPECT_TRUE(check(dense, {.tp = 2}).ok());
  EXPECT_THAT(check(dense, {.tp = 2, .ep = 2}).message(), HasSubstr("no experts"));
}

}  // namespace
}  // namespace longspan::plan
