#include "plan/pipeline_schedule.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<PlanLoop> OrderOf(const std::vector<bool>& ends_group, int loops) {
  LoopOrder order(loops);
  std::vector<PlanLoop> all;
  for (size_t plan = 0; plan < ends_group.size(); ++plan)
    for (const PlanLoop& item : order.Add({plan}, ends_group[plan])) all.push_back(item);
  return all;
}

TEST(LoopOrderTest, AGroupGoesThroughALoopBeforeTheNextLoopBegins) {
  EXPECT_THAT(OrderOf({false, true, true}, 3),
              ElementsAre(PlanLoop{{0}, 0}, PlanLoop{{1}, 0}, PlanLoop{{0}, 1}, PlanLoop{{1}, 1},
                          PlanLoop{{0}, 2}, PlanLoop{{1}, 2},  //
                          PlanLoop{{2}, 0}, PlanLoop{{2}, 1}, PlanLoop{{2}, 2}));
}

TEST(LoopOrderTest, WhatIsKnownToBeDueWaitsForNoFurtherPlan) {
  LoopOrder order(2);
  EXPECT_THAT(order.Add({1}, false), ElementsAre(PlanLoop{{1}, 0}));
  EXPECT_THAT(order.Add({2}, true),
              ElementsAre(PlanLoop{{2}, 0}, PlanLoop{{1}, 1}, PlanLoop{{2}, 1}));
  EXPECT_THAT(order.Add({3}, true), ElementsAre(PlanLoop{{3}, 0}, PlanLoop{{3}, 1}));
}

TEST(LoopOrderTest, EveryLoopTakesThePlansInTheOrderOfTheLog) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    const int loops = 1 + round % 4;
    std::vector<bool> ends_group(1 + random() % 30);
    for (size_t i = 0; i < ends_group.size(); ++i) ends_group[i] = random() % 3 == 0;
    ends_group.back() = true;
    std::vector<uint64_t> next(static_cast<size_t>(loops), 0);
    for (const PlanLoop& item : OrderOf(ends_group, loops)) {
      EXPECT_EQ(item.plan.value, next[item.loop]++);
      // A loop of a plan comes after the loop before.
      if (item.loop > 0) {
        EXPECT_LT(item.plan.value, next[item.loop - 1]);
      }
    }
    for (const uint64_t count : next) EXPECT_EQ(count, ends_group.size());
  }
}

StepPlan PlanOf(uint64_t number, TokenSource token) {
  return {.number = {number}, .slices = {{.sequence = {1}, .tokens = {token}}}};
}

TEST(OpenGroupTest, IsFullAtItsSize) {
  OpenGroup group(2);
  for (const uint64_t number : {1, 2}) {
    const StepPlan plan = PlanOf(number, TokenSource::Literal(3));
    EXPECT_TRUE(group.Accepts(plan));
    group.Add(plan);
  }
  EXPECT_TRUE(group.full());
  EXPECT_FALSE(group.Accepts(PlanOf(3, TokenSource::Literal(3))));
  group.End();
  EXPECT_FALSE(group.full());
  EXPECT_TRUE(group.Accepts(PlanOf(3, TokenSource::Literal(3))));
}

TEST(OpenGroupTest, APlanWaitsForTheTokensOfAnEarlierGroupOnly) {
  OpenGroup group(4);
  EXPECT_TRUE(group.Accepts(PlanOf(6, TokenSource::Sampled({5}, 0))));
  group.Add(PlanOf(6, TokenSource::Literal(3)));
  group.Add(PlanOf(7, TokenSource::Literal(3)));
  EXPECT_TRUE(group.Accepts(PlanOf(8, TokenSource::Sampled({5}, 0))));
  EXPECT_FALSE(group.Accepts(PlanOf(8, TokenSource::Sampled({6}, 0))));
  EXPECT_FALSE(group.Accepts(PlanOf(8, TokenSource::Sampled({7}, 0))));
}

// Chunks of these times, the same on all ranks, divided over the loops.
double Makespan(const std::vector<double>& chunks, int ranks, int loops) {
  return PipelineMakespan(FullGroups(static_cast<int>(chunks.size()), GroupSize(ranks, loops)),
                          ranks, loops,
                          [&](size_t plan, int, int) { return chunks[plan] / loops; });
}

double Sum(const std::vector<double>& chunks) {
  return std::accumulate(chunks.begin(), chunks.end(), 0.0);
}

TEST(PipelineMakespanTest, WithoutLoopsTheLongestChunkCountsOncePerFurtherRank) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> seconds(0.5, 5.0);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> chunks(1 + random() % 20);
    for (double& chunk : chunks) chunk = seconds(random);
    const double longest = *std::max_element(chunks.begin(), chunks.end());
    const int ranks = 1 + round % 9;
    EXPECT_NEAR(Makespan(chunks, ranks, 1), Sum(chunks) + (ranks - 1) * longest, 1e-9);
  }
}

TEST(PipelineMakespanTest, FullGroupsOfEqualChunksMeetTheLowerBound) {
  for (const int ranks : {2, 4, 8}) {
    for (const int loops : {2, 4}) {
      const std::vector<double> chunks(static_cast<size_t>(4 * ranks), 1.0);
      EXPECT_NEAR(Makespan(chunks, ranks, loops), 4 * ranks + (ranks - 1.0) / loops, 1e-9);
    }
  }
}

TEST(PipelineMakespanTest, NothingIsBelowTheLowerBound) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> seconds(0.5, 5.0);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> chunks(1 + random() % 40);
    for (double& chunk : chunks) chunk = seconds(random);
    const double longest = *std::max_element(chunks.begin(), chunks.end());
    const int ranks = 1 + round % 9;
    const int loops = 2 + round % 3;
    EXPECT_GE(Makespan(chunks, ranks, loops), Sum(chunks) + (ranks - 1.0) / loops * longest - 1e-9);
  }
}

TEST(PipelineMakespanTest, ALonePlanGoesThroughEveryRankInEveryLoop) {
  EXPECT_NEAR(Makespan({6.0}, 4, 3), 24, 1e-9);
}

TEST(FullGroupsTest, TheLastOneMayBeSmaller) {
  EXPECT_THAT(FullGroups(5, 2), ElementsAre(false, true, false, true, true));
  EXPECT_THAT(FullGroups(2, 2), ElementsAre(false, true));
  EXPECT_THAT(FullGroups(0, 2), IsEmpty());
}

}  // namespace
}  // namespace longspan::plan
