#include "plan/step_time.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "plan/urgency.h"

namespace longspan::plan {
namespace {

StepWork Work(int64_t begin, int64_t end) {
  StepWork work;
  work.Add(begin, end);
  return work;
}

constexpr double kRow = 2e-4;
constexpr double kPair = 3e-9;
double True(const StepWork& work) { return kRow * work.rows + kPair * work.pairs; }

TEST(StepTimeTest, AChunksPairsAreThoseOfItsRows) {
  const StepWork work = Work(10, 13);
  EXPECT_EQ(work.rows, 3);
  EXPECT_EQ(work.pairs, 13 * 13 - 10 * 10);
}

TEST(StepTimeTest, LearnsALongPrompt) {
  StepTimeModel model;
  for (int64_t begin = 0; begin < 40 * 512; begin += 512)
    model.Add(Work(begin, begin + 512), True(Work(begin, begin + 512)));
  for (const auto& work : {Work(0, 64), Work(100'000, 100'512), Work(1'000'000, 1'000'512)})
    EXPECT_NEAR(model.Seconds(work) / True(work), 1, 0.01);
}

TEST(StepTimeTest, OneMeasurementGivesAFirstLine) {
  StepTimeModel model;
  model.Add(Work(0, 100), 0.5);
  EXPECT_NEAR(model.Seconds(Work(0, 50)), 0.25, 1e-3);
}

TEST(StepTimeTest, NoiseAndABusyMachineAreSurvived) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.05);
  StepTimeModel model;
  for (int i = 0; i < 64; ++i) {
    const StepWork work = Work(1024 * i, 1024 * i + (i % 3 == 0 ? 200 : 512));
    model.Add(work, True(work) * noise(random) * (i % 8 == 5 ? 6 : 1));
  }
  for (const auto& work : {Work(0, 512), Work(60'000, 60'512)})
    EXPECT_NEAR(model.Seconds(work) / True(work), 1, 0.1);
}

TEST(StepTimeTest, NeitherTermIsNegative) {
  StepTimeModel model;
  // Deeper chunks are faster: only a machine that got faster explains that.
  for (int i = 0; i < 20; ++i) model.Add(Work(512 * i, 512 * (i + 1)), 1.0 / (i + 1));
  EXPECT_GT(model.Seconds(Work(0, 1)), 0);
  EXPECT_GE(model.Seconds(Work(1'000'000, 1'000'001)), model.Seconds(Work(0, 1)));
}

TEST(StepTimeTest, FollowsAChangeWithinItsWindow) {
  StepTimeModel model;
  for (int i = 0; i < 100; ++i) model.Add(Work(0, 512), 0.1);
  for (int i = 0; i < 64; ++i) model.Add(Work(0, 512), 0.3);
  EXPECT_NEAR(model.Seconds(Work(0, 512)), 0.3, 0.003);
}

TEST(StepTimeTest, TheLongestChunkTakesTheTimeThatIsLeft) {
  StepTimeModel model;
  for (int64_t begin = 0; begin < 40 * 512; begin += 512)
    model.Add(Work(begin, begin + 512), True(Work(begin, begin + 512)));
  for (const int64_t begin : {0, 1000, 500'000}) {
    const int64_t rows = model.LongestChunk(begin, 100'000, 0.05);
    EXPECT_LE(model.Seconds(Work(begin, begin + rows)), 0.05);
    EXPECT_GT(model.Seconds(Work(begin, begin + rows + 1)), 0.05);
  }
  EXPECT_EQ(model.LongestChunk(0, 512, 1e9), 512);
  EXPECT_EQ(model.LongestChunk(0, 512, 0), 0);
  EXPECT_EQ(model.LongestChunk(0, 512, -1), 0);
}

TEST(UrgencyTest, AShortPromptOvertakesALongOneUnlessThatWasHeldUpMore) {
  const double chunk = 1;
  const double fresh = Urgency(0, chunk, 0.125);
  EXPECT_GT(fresh, Urgency(300, chunk, 400));
  EXPECT_LT(fresh, Urgency(4000, chunk, 400));
  // Of equal ones the first stays ahead.
  EXPECT_GT(Urgency(5, chunk, 400), Urgency(4, chunk, 400));
  EXPECT_TRUE(std::isfinite(Urgency(1, chunk, 0)));
}

TEST(UrgencyTest, OvertakingEndsWhenAChunkIsOwed) {
  OvertakingDebt debt;
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(debt.MayOvertake(1)) << i;
    debt.Overtaken(0.125);
  }
  EXPECT_FALSE(debt.MayOvertake(1));
  debt.Progress(1);
  EXPECT_TRUE(debt.MayOvertake(1));
}

}  // namespace
}  // namespace longspan::plan
