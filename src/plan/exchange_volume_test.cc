#include "plan/exchange_volume.h"

#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

TEST(ExchangeVolumeTest, LargeSumsHalveTheBytesAndSmallOnesTheSteps) {
  EXPECT_EQ(SumBytes(4 << 20, 4), 2 * 0.75 * (4 << 20));
  EXPECT_EQ(SumBytes(4096, 4), 3 * 4096);
  EXPECT_EQ(SumBytes(4 << 20, 1), 0);
  EXPECT_EQ(TensorLayerBytes(512, 1152, 2), 2 * 512 * 1152);
}

TEST(ExchangeVolumeTest, ARowGoesOnceToEachRankOfItsExperts) {
  const ExpertVolume volume = {.ranks = 2, .hidden = 64, .element = 2, .choices = 4};
  EXPECT_EQ(ExpertLayerBytes(volume, 0, 0), 8);
  EXPECT_EQ(ExpertLayerBytes(volume, 10, 7), 8 + 10 * (128 + 32) + 7 * 128);
}

TEST(ExchangeVolumeTest, MeanRanksOfUniformChoices) {
  // One choice is on one rank; all experts are on all of them.
  EXPECT_DOUBLE_EQ(MeanExpertRanks({.ranks = 4, .choices = 1}, 16), 1);
  EXPECT_DOUBLE_EQ(MeanExpertRanks({.ranks = 4, .choices = 16}, 16), 4);
  // Two of four experts, two at either rank: 2 of 6 pairs are together.
  EXPECT_NEAR(MeanExpertRanks({.ranks = 2, .choices = 2}, 4), 1 + 4.0 / 6, 1e-12);
}

// Where every row goes to all ranks, the mean is what is counted.
TEST(ExchangeVolumeTest, TheMeanIsThatOfTheRanks) {
  const ExpertVolume volume = {.ranks = 4, .hidden = 64, .element = 2, .choices = 8};
  constexpr int64_t kRows = 400;  // 100 of every rank, each to the three others
  EXPECT_DOUBLE_EQ(MeanExpertLayerBytes(volume, 4, kRows),
                   static_cast<double>(ExpertLayerBytes(volume, 300, 300)));
}

}  // namespace
}  // namespace longspan::plan
