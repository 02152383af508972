#include "apps/bench_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::Lt;

TEST(BenchRunTest, RandomTokensAreTheSameEachTimeAndDifferByStream) {
  const auto tokens = RandomTokens(1000, 50, 3);
  EXPECT_EQ(tokens, RandomTokens(1000, 50, 3));
  EXPECT_NE(tokens, RandomTokens(1000, 50, 4));
  EXPECT_THAT(tokens, Each(Ge(0)));
  EXPECT_THAT(tokens, Each(Lt(50)));
}

TEST(BenchRunTest, SpreadTakesTheMiddle) {
  EXPECT_EQ(SpreadOf({5, 1, 3}).median, 3);
  EXPECT_EQ(SpreadOf({4, 1, 3, 2}).median, 2.5);
  EXPECT_EQ(SpreadOf({4, 1, 3}).min, 1);
  EXPECT_EQ(SpreadOf({4, 1, 3}).max, 4);
}

TEST(BenchRunTest, PeaksMayDifferByThreePercent) {
  EXPECT_FALSE(PeakMoved(1.95, 2.0));
  EXPECT_FALSE(PeakMoved(2.0, 1.95));
  EXPECT_TRUE(PeakMoved(1.9, 2.0));
  EXPECT_TRUE(PeakMoved(2.0, 1.9));
}

TEST(BenchRunTest, PrefillBehindASyntheticPrefixComputesOnlyTheRest) {
  EngineFlags flags;
  flags.backend = "reference";
  flags.threads = 1;
  flags.chunked_prefill_size = 8;
  flags.chunk_policy = "fixed";
  flags.cost_cache = "off";
  flags.model_path = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";
  const auto setup = ResolveSetup(flags).value();
  const auto engine =
      StartBenchEngine(flags, setup, {.tokens = 100 + 12 + 1, .synthetic_kv = true});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto run = RunPrefill(**engine, {BenchRequest(**engine, 100, 12, 1)});
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_EQ(run->report.chunks().size(), 2U);
  EXPECT_EQ(run->report.chunks()[0].begin, 100);
  EXPECT_EQ(run->report.chunks()[0].end, 104);
  EXPECT_EQ(run->report.chunks()[1].end, 112);
  EXPECT_GT(run->seconds, 0);
  EXPECT_GE(run->report.bubble_share(), 0);
  EXPECT_LT(run->report.bubble_share(), 1);
}

}  // namespace
}  // namespace longspan::apps
