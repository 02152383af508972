#include "apps/ideal_speedup.h"

#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

TEST(IdealSpeedupTest, OneChunkGainsNothing) {
  EXPECT_DOUBLE_EQ(IdealSpeedup(SumChunks({3}), {4}, 1), 1);
}

TEST(IdealSpeedupTest, EqualChunksFillThePipeButForItsEnds) {
  EXPECT_DOUBLE_EQ(IdealSpeedup(SumChunks(std::vector(8, 0.5)), {2}, 1), 2 * 8.0 / 9);
  EXPECT_DOUBLE_EQ(IdealSpeedup(SumChunks(std::vector(8, 0.5)), {4}, 1), 4 * 8.0 / 11);
}

TEST(IdealSpeedupTest, TheLongestChunkIsWhatTheOtherStagesWaitFor) {
  EXPECT_DOUBLE_EQ(IdealSpeedup(SumChunks({1, 2, 5}), {2}, 1), 2 * 8.0 / 13);
}

TEST(IdealSpeedupTest, CoresThatSlowEachOtherDownGainLess) {
  EXPECT_DOUBLE_EQ(IdealSpeedup(SumChunks({1, 1}), {2}, 0.9), 0.9 * 4 / 3);
}

TEST(IdealSpeedupTest, LoopsShortenTheFill) {
  EXPECT_DOUBLE_EQ(IdealSpeedup(SumChunks(std::vector(8, 1.0)), {.ranks = 5, .loops = 2}, 1), 4);
}

}  // namespace
}  // namespace longspan::apps
