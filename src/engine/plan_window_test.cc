#include "engine/plan_window.h"

#include <vector>

#include <gtest/gtest.h>

namespace longspan::engine {
namespace {

constexpr int kMost = 3;

// Of chunks whose time grows with their rows alone.
class PlanWindowTest : public ::testing::Test {
 protected:
  static PlanSize Chunk(double rows) { return {.work = {.rows = rows}, .has_chunk = true}; }
  static PlanSize Decodes(double rows) { return {.work = {.rows = rows}}; }
  // How many plans follow, one after the other.
  size_t Follow(std::vector<PlanSize> uncommitted, const PlanSize& next) const {
    const size_t before = uncommitted.size();
    while (MayFollow(uncommitted, time_, kMost)) uncommitted.push_back(next);
    return uncommitted.size() - before;
  }
  plan::StepTimeModel time_;
};

TEST_F(PlanWindowTest, EqualPlansAreOneForEachStageAndOneThatWaits) {
  EXPECT_EQ(Follow({}, Chunk(512)), 3U);
  EXPECT_EQ(Follow({Chunk(512)}, Chunk(512)), 2U);
  EXPECT_EQ(Follow({}, Decodes(64)), 3U);
}

TEST_F(PlanWindowTest, PlansAsLongButForALittleCountAsWhole) {
  EXPECT_EQ(Follow({Chunk(1000), Chunk(900)}, Chunk(800)), 1U);
}

TEST_F(PlanWindowTest, ShortChunksBehindLongOnesMakeUpTheirTime) {
  // The last stage computes one long chunk while the first one works off what comes behind.
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Chunk(500)), 2U);
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Chunk(300)), 4U);
}

TEST_F(PlanWindowTest, TheyAreAtMostTwiceAsMany) {
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Chunk(1)), 4U);
}

TEST_F(PlanWindowTest, StepsOfDecodesCountAsWholeHoweverShort) {
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Decodes(1)), 1U);
}

TEST_F(PlanWindowTest, TheTimeIsTheOneThatWasMeasured) {
  // Pairs alone cost: equal rows, a quarter of the time behind a quarter of the positions.
  for (const double length : {1000.0, 2000.0, 4000.0})
    time_.Add({.rows = 100, .pairs = 200 * length}, length);
  const auto behind = [](double length) {
    return PlanSize{.work = {.rows = 100, .pairs = 200 * length}, .has_chunk = true};
  };
  EXPECT_EQ(Follow({behind(4000), behind(4000)}, behind(4000)), 1U);
  EXPECT_EQ(Follow({behind(4000), behind(4000)}, behind(1000)), 4U);
}

}  // namespace
}  // namespace longspan::engine
