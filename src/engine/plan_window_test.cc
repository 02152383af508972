#include "engine/plan_window.h"

#include <vector>

#include <gtest/gtest.h>

namespace longspan::engine {
namespace {

constexpr int kMost = 3;

PlanSize Chunk(double seconds) { return {.seconds = seconds, .has_chunk = true}; }
PlanSize Decodes(double seconds) { return {.seconds = seconds}; }

// How many plans follow, one after the other.
size_t Follow(std::vector<PlanSize> uncommitted, const PlanSize& next) {
  const size_t before = uncommitted.size();
  while (MayFollow(uncommitted, kMost)) uncommitted.push_back(next);
  return uncommitted.size() - before;
}

TEST(PlanWindowTest, EqualPlansAreOneForEachStageAndOneThatWaits) {
  EXPECT_EQ(Follow({}, Chunk(512)), 3U);
  EXPECT_EQ(Follow({Chunk(512)}, Chunk(512)), 2U);
  EXPECT_EQ(Follow({}, Decodes(64)), 3U);
}

TEST(PlanWindowTest, PlansAsLongButForALittleCountAsWhole) {
  EXPECT_EQ(Follow({Chunk(1000), Chunk(900)}, Chunk(800)), 1U);
}

TEST(PlanWindowTest, ShortChunksBehindLongOnesMakeUpTheirTime) {
  // The last stage computes one long chunk while the first one works off what comes behind.
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Chunk(500)), 2U);
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Chunk(300)), 4U);
}

TEST(PlanWindowTest, TheyAreAtMostTwiceAsMany) {
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Chunk(1)), 4U);
}

TEST(PlanWindowTest, StepsOfDecodesCountAsWholeHoweverShort) {
  EXPECT_EQ(Follow({Chunk(1000), Chunk(1000)}, Decodes(1)), 1U);
}

TEST(PlanWindowTest, TheTimeIsTheOneThatWasMeasured) {
  plan::PipelineFit time({.shape = {}, .stages = {{.per_token = 1e-3, .per_pair = 1e-6}}});
  const auto chunk = [](int64_t begin) {
    plan::StepPlan plan;
    plan.slices.push_back({.begin = begin, .tokens = std::vector<plan::TokenSource>(100)});
    return plan;
  };
  // Pairs alone cost: equal rows, a quarter of the time behind a quarter of the positions.
  for (const int64_t begin : {1000, 2000, 4000})
    time.Add(WorkOf(chunk(begin), 0), std::vector{1e-6 * WorkOf(chunk(begin), 0).pairs});
  const auto behind = [&](int64_t begin) { return SizeOf(chunk(begin), time); };
  EXPECT_EQ(Follow({behind(4000), behind(4000)}, behind(4000)), 1U);
  EXPECT_EQ(Follow({behind(4000), behind(4000)}, behind(1000)), 4U);
}

}  // namespace
}  // namespace longspan::engine
