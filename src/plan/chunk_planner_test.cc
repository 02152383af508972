#include "plan/chunk_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "plan/chunk_planner_test_support.h"
#include "plan/pipeline_schedule.h"

namespace longspan::plan {
namespace {

using testing::BestOfAllSplits;
using testing::Objective;
using testing::RandomModels;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Every token once, cut at pages, under the caps.
void ExpectValid(const ChunkSequence& chunks, const PipelineCost& cost,
                 const ChunkRequest& request) {
  ASSERT_FALSE(chunks.ends.empty());
  EXPECT_EQ(chunks.ends.back(), request.end);
  int64_t begin = request.begin;
  for (const int64_t end : chunks.ends) {
    EXPECT_GT(end, begin);
    EXPECT_LE(end - begin, std::max(request.max_tokens, request.page_size));
    if (end != request.end) {
      EXPECT_EQ(end % request.page_size, 0);
    }
    const bool is_page = end - begin <= request.page_size;
    for (int rank = 0; rank < cost.shape.ranks && !is_page; ++rank) {
      double seconds = 0;
      for (int loop = 0; loop < cost.shape.loops; ++loop)
        seconds += cost.at(rank, loop).Seconds(begin, end);
      if (std::isfinite(seconds)) {
        EXPECT_LE(seconds, request.max_seconds * (1 + 1e-6));
      }
    }
    begin = end;
  }
}

PipelineCost Identical(const PipelineShape& shape, const ChunkCost& cost) {
  return {.shape = shape,
          .stages = std::vector<ChunkCost>(static_cast<size_t>(shape.stages()), cost)};
}

constexpr ChunkCost kCost = {
    .per_step = 4e-3, .per_prefix_token = 1e-9, .per_token = 5e-6, .per_pair = 4e-11};

ChunkCost Least(const ChunkCost& a, const ChunkCost& b) {
  return {.per_step = std::min(a.per_step, b.per_step),
          .per_prefix_token = std::min(a.per_prefix_token, b.per_prefix_token),
          .per_token = std::min(a.per_token, b.per_token),
          .per_pair = std::min(a.per_pair, b.per_pair)};
}

// What goes through the first rank up to some chunk, with that one through all ranks, and through
// the last rank from there on cannot overlap, whichever chunk it is. So identical ranks that take
// the least of first, last and mean are a lower bound.
double NoLess(const PipelineCost& cost, int64_t length) {
  ChunkCost mean = cost.stages.front();
  for (size_t rank = 1; rank < cost.stages.size(); ++rank) mean = Sum(mean, cost.stages[rank]);
  mean = Scaled(mean, 1 / static_cast<double>(cost.stages.size()));
  const ChunkCost least = Least(mean, Least(cost.stages.front(), cost.stages.back()));
  return PlanChunks(Identical(cost.shape, least), {.end = length}).makespan_s;
}

// Chunks that take as long as a first one of `tokens` on a rank in the middle.
double EvenTimes(const PipelineCost& cost, int64_t length, int64_t tokens) {
  const ChunkCost& middle = cost.stages[cost.stages.size() / 2];
  std::vector<int64_t> ends;
  for (int64_t begin = 0; begin < length; begin = ends.back()) {
    int64_t end = begin + 64;
    while (end < length && middle.Seconds(begin, end + 64) <= middle.Seconds(0, tokens)) end += 64;
    ends.push_back(std::min(end, length));
  }
  return Predict(cost, 0, std::move(ends)).makespan_s;
}

TEST(ChunkPlannerTest, OfIdenticalStagesNoSplitIsBetter) {
  RandomModels random(1);
  for (int i = 0; i < 500; ++i) {
    const auto [cost, request] = random.Next({.loops = 1, .pages = 9});
    const ChunkSequence chunks = PlanChunks(cost, request);
    ExpectValid(chunks, cost, request);
    EXPECT_NEAR(Objective(chunks, request) / BestOfAllSplits(cost, request), 1, 1e-9) << i;
  }
}

TEST(ChunkPlannerTest, OfLoopedStagesNoSplitIsMuchBetter) {
  RandomModels random(2);
  for (int i = 0; i < 500; ++i) {
    const auto [cost, request] = random.Next({.loops = 2, .pages = 8});
    const ChunkSequence chunks = PlanChunks(cost, request);
    ExpectValid(chunks, cost, request);
    EXPECT_LE(Objective(chunks, request) / BestOfAllSplits(cost, request), 1.005) << i;
  }
}

TEST(ChunkPlannerTest, OfUnequalStagesNoSplitIsMuchBetter) {
  RandomModels random(3);
  for (int i = 0; i < 200; ++i) {
    const auto [cost, request] = random.Next({.loops = 1 + i % 3, .pages = 8, .unequal = true});
    const ChunkSequence chunks = PlanChunks(cost, request);
    ExpectValid(chunks, cost, request);
    EXPECT_LE(Objective(chunks, request) / BestOfAllSplits(cost, request), 1.01) << i;
  }
}

TEST(ChunkPlannerTest, TheMakespanIsThatOfTheRecurrence) {
  RandomModels random(4);
  for (int i = 0; i < 50; ++i) {
    const auto [cost, request] =
        random.Next({.loops = 1 + i % 4, .pages = 20, .unequal = i % 2 == 0});
    const ChunkSequence chunks = PlanChunks(cost, request);
    const int plans = static_cast<int>(chunks.ends.size());
    const auto groups = FullGroups(plans, GroupSize(cost.shape.ranks, cost.shape.loops));
    const auto seconds = [&](size_t plan, int rank, int loop) {
      return cost.at(rank, loop)
          .Seconds(plan == 0 ? request.begin : chunks.ends[plan - 1], chunks.ends[plan]);
    };
    EXPECT_NEAR(
        chunks.makespan_s / PipelineMakespan(groups, cost.shape.ranks, cost.shape.loops, seconds),
        1, 1e-12);
  }
}

// sum t + (P - 1) / V max t is a lower bound with loops, met by equal chunks in full groups.
TEST(ChunkPlannerTest, LongPromptsOnLoopedStagesAreNearTheLowerBound) {
  for (const int ranks : {2, 8, 16}) {
    for (const int loops : {2, 4}) {
      const ChunkCost whole = Scaled(kCost, loops);
      for (const int64_t length : {int64_t{1} << 17, int64_t{1} << 20}) {
        const double bound = [&] {
          const ChunkRequest shared = {.end = length, .drain_share = 1.0 / loops};
          return Objective(PlanChunks(Identical({ranks, 1}, whole), shared), shared);
        }();
        const ChunkSequence chunks = PlanChunks(Identical({ranks, loops}, kCost), {.end = length});
        EXPECT_LE(chunks.makespan_s, bound * 1.008) << ranks << " " << loops << " " << length;
      }
    }
  }
}

// Every rank learns its own costs: the same ones, but for noise. Compared with what no sequence can
// be better than, and with many that one could choose by hand.
TEST(ChunkPlannerTest, RanksThatDifferByNoiseCostNoMoreThanTheirNoise) {
  std::mt19937 random(6);
  std::uniform_real_distribution<double> noise(0.97, 1.03);
  for (const int ranks : {2, 8, 16}) {
    for (const int64_t length : {int64_t{1} << 17, int64_t{1} << 20}) {
      PipelineCost cost = Identical({ranks, 1}, kCost);
      for (ChunkCost& stage : cost.stages)
        stage = {.per_step = kCost.per_step * noise(random),
                 .per_prefix_token = kCost.per_prefix_token * noise(random),
                 .per_token = kCost.per_token * noise(random),
                 .per_pair = kCost.per_pair * noise(random)};
      const double planned = PlanChunks(cost, {.end = length}).makespan_s;
      EXPECT_LE(planned, 1.05 * NoLess(cost, length)) << ranks << " " << length;
      double best = kInfinity;
      for (int64_t tokens = 256; tokens <= 32768; tokens += tokens / 8 / 64 * 64 + 64)
        best = std::min(best, EvenTimes(cost, length, tokens));
      EXPECT_LE(planned, 1.001 * best) << ranks << " " << length;
    }
  }
}

TEST(ChunkPlannerTest, StartsBehindAPrefixAndMergesTheTail) {
  const PipelineCost cost = Identical({4, 1}, kCost);
  const ChunkRequest request = {.begin = 64'010, .end = 128'003};
  const ChunkSequence chunks = PlanChunks(cost, request);
  ExpectValid(chunks, cost, request);
  ASSERT_GT(chunks.ends.size(), 2U);
  // The last chunk takes about as long as the longest one.
  const int64_t last = chunks.ends[chunks.ends.size() - 2];
  EXPECT_GT(kCost.Seconds(last, request.end), 0.9 * chunks.longest_s);
}

TEST(ChunkPlannerTest, KeepsItsLimits) {
  for (const int loops : {1, 2}) {
    const PipelineCost cost = Identical({4, loops}, kCost);
    ChunkRequest request = {.end = 200'000, .max_tokens = 2048};
    ExpectValid(PlanChunks(cost, request), cost, request);
    request.max_tokens = 100;  // a page
    ExpectValid(PlanChunks(cost, request), cost, request);
    request.max_tokens = 1 << 20;
    request.max_seconds = 0.02 * loops;
    ExpectValid(PlanChunks(cost, request), cost, request);
    // Single pages where they are above it already.
    request.max_seconds = 0.0050 * loops;
    ExpectValid(PlanChunks(cost, request), cost, request);
    request.max_seconds = 1e-9;
    EXPECT_EQ(PlanChunks(cost, request).ends.size(), 3125U);
  }
}

TEST(ChunkPlannerTest, PromptsThatShareTheDrainGetLongerChunks) {
  const PipelineCost cost = Identical({8, 1}, kCost);
  ChunkRequest request = {.end = 1 << 17};
  const ChunkSequence alone = PlanChunks(cost, request);
  request.drain_share = 1.0 / 16;
  const ChunkSequence shared = PlanChunks(cost, request);
  EXPECT_GT(shared.longest_s, 2 * alone.longest_s);
  EXPECT_LT(shared.work_s, alone.work_s);
  // 16 of them one behind the other are done sooner.
  EXPECT_LT(16 * shared.work_s + 7 * shared.longest_s, 16 * alone.work_s + 7 * alone.longest_s);
}

// A drain that is there already costs nothing more.
TEST(ChunkPlannerTest, BehindALongStepChunksAreAsLongAsIt) {
  for (const int loops : {1, 2}) {
    const PipelineCost cost = Identical({8, loops}, kCost);
    ChunkRequest request = {.end = 1 << 17};
    const ChunkSequence alone = PlanChunks(cost, request);
    request.longest_before_s = 0.9 * alone.longest_s;
    EXPECT_EQ(PlanChunks(cost, request).ends, alone.ends);
    request.longest_before_s = 3 * alone.longest_s;
    const ChunkSequence behind = PlanChunks(cost, request);
    ExpectValid(behind, cost, request);
    EXPECT_LE(behind.longest_s, request.longest_before_s);
    EXPECT_GT(behind.longest_s, 1.5 * alone.longest_s);
    EXPECT_LT(behind.work_s, alone.work_s);
    request.max_seconds = 2 * alone.longest_s;
    EXPECT_LE(PlanChunks(cost, request).longest_s, request.max_seconds);
  }
}

TEST(ChunkPlannerTest, OneStageTakesAsFewChunksAsItsLimitAllows) {
  const PipelineCost cost = Identical({1, 1}, kCost);
  const ChunkSequence chunks = PlanChunks(cost, {.end = 10'000, .max_tokens = 4096});
  EXPECT_EQ(chunks.ends.size(), 3U);
}

TEST(ChunkPlannerTest, AnyCostGivesAValidPlan) {
  const double nan = std::nan("");
  for (const ChunkCost& bad :
       {ChunkCost{}, ChunkCost{.per_step = nan, .per_token = nan, .per_pair = nan},
        ChunkCost{.per_step = -1, .per_token = -1, .per_pair = -1},
        ChunkCost{.per_step = kInfinity, .per_token = 1e-5},
        ChunkCost{.per_prefix_token = 1e9, .per_token = 1e-300, .per_pair = 1e300},
        ChunkCost{.per_step = 1, .per_prefix_token = 1e-3, .per_pair = 1e-12},
        ChunkCost{.per_index_pair = 1, .per_selected_pair = 1e-9, .top_k = 2048}}) {
    for (const int loops : {1, 2}) {
      const PipelineCost cost = Identical({3, loops}, bad);
      const ChunkRequest request = {.begin = 640, .end = 40'000, .max_tokens = 8192};
      ExpectValid(PlanChunks(cost, request), cost, request);
    }
  }
}

TEST(ChunkPlannerTest, EqualArgumentsGiveTheSamePlan) {
  RandomModels random(5);
  const auto [cost, request] = random.Next({.loops = 3, .pages = 200, .unequal = true});
  EXPECT_EQ(PlanChunks(cost, request).ends, PlanChunks(cost, request).ends);
}

}  // namespace
}  // namespace longspan::plan
