#include "spec/mesh.h"

#include <gtest/gtest.h>

namespace longspan::spec {
namespace {

TEST(MeshTest, TpIsInnermostAndStagesAreOutermost) {
  constexpr Mesh kMesh{.pp = 2, .cp = 3, .tp = 2};
  static_assert(kMesh.ranks() == 12);
  EXPECT_EQ(kMesh.stage_of(5), 0);
  EXPECT_EQ(kMesh.stage_of(6), 1);
  EXPECT_EQ(kMesh.tp_rank_of(7), 1);
  EXPECT_EQ(kMesh.cp_rank_of(7), 0);
  EXPECT_EQ(kMesh.cp_rank_of(11), 2);
}

TEST(MeshTest, RefusesWhatIsNotBuiltOrDoesNotDivide) {
  EXPECT_TRUE(CheckMesh({.pp = 4}).ok());
  EXPECT_EQ(CheckMesh({.pp = 0}).code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckMesh({.tp = 4, .ep = 3}).code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckMesh({.cp = 2}).code(), base::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckMesh({.tp = 2}).code(), base::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace longspan::spec
