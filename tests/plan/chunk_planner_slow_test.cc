// Plans of prompts of up to 18 pages against all ways to cut them: 131,072 for each of 500 models.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "plan/chunk_planner_test_support.h"

namespace longspan::plan {
namespace {

using testing::BestOfAllSplits;
using testing::Objective;
using testing::RandomModels;

constexpr int kModels = 500;
constexpr int kPages = 18;
// A machine that others use, or sanitizers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlack = 20;
#else
constexpr double kSlack = 4;
#endif

double WorstRatio(int loops, uint32_t seed) {
  RandomModels random(seed);
  double worst = 1;
  for (int i = 0; i < kModels; ++i) {
    const auto [cost, request] = random.Next({.loops = loops, .pages = kPages - i % 4});
    const double ratio =
        Objective(PlanChunks(cost, request), request) / BestOfAllSplits(cost, request);
    if (ratio > 1.001)
      std::printf("model %d: %d ranks, %.4f of the best\n", i, cost.shape.ranks, ratio);
    worst = std::max(worst, ratio);
  }
  std::printf("V=%d: worst %.6f of the best\n", loops, worst);
  return worst;
}

// The least objective of a prompt of many pages on identical stages, by dynamic programming over
// pages for each cap. Between two caps no sequence is better than the sum under the higher one and
// the drain of the lower one, which bounds the caps that have to be looked at.
class DynamicProgram {
 public:
  DynamicProgram(const ChunkCost& cost, int64_t pages, double drain_weight)
      : pages_(static_cast<size_t>(pages)), drain_weight_(drain_weight) {
    for (size_t last = 1; last <= pages_; ++last)
      for (size_t first = 0; first < last; ++first)
        seconds_.push_back(
            cost.Seconds(64 * static_cast<int64_t>(first), 64 * static_cast<int64_t>(last)));
  }

  // Within `tolerance` of it, and never below.
  double Best(double tolerance) {
    double least = 0;  // that a cap must be
    for (size_t page = 0; page < pages_; ++page) least = std::max(least, Chunk(page, page + 1));
    Search({least, Capped(least)}, {Chunk(0, pages_), Capped(Chunk(0, pages_))}, tolerance);
    return best_;
  }

 private:
  struct Cap {
    double seconds = 0;
    double sum = 0;
  };

  double Chunk(size_t first, size_t last) const { return seconds_[last * (last - 1) / 2 + first]; }

  // The least sum with no chunk above the cap.
  double Capped(double cap) {
    std::vector<double> sums(pages_ + 1, std::numeric_limits<double>::infinity());
    sums[0] = 0;
    for (size_t last = 1; last <= pages_; ++last) {
      const double* chunk = &seconds_[last * (last - 1) / 2];
      for (size_t first = last; first-- > 0 && chunk[first] <= cap;)
        sums[last] = std::min(sums[last], sums[first] + chunk[first]);
    }
    best_ = std::min(best_, sums[pages_] + drain_weight_ * cap);
    return sums[pages_];
  }

  void Search(const Cap& low, const Cap& high, double tolerance) {
    if (high.sum + drain_weight_ * low.seconds >= best_ * (1 - tolerance)) return;
    const double middle = (low.seconds + high.seconds) / 2;
    const Cap between = {middle, Capped(middle)};
    Search(low, between, tolerance);
    Search(between, high, tolerance);
  }

  size_t pages_;
  double drain_weight_;
  double best_ = std::numeric_limits<double>::infinity();
  std::vector<double> seconds_;  // [last page][first page]
};

TEST(ChunkPlannerSlowTest, OfLongPromptsTheDynamicProgramFindsNoBetterOne) {
  constexpr double kTolerance = 1e-4;
  RandomModels random(13);
  for (const int pages : {200, 700, 2048}) {
    for (int i = 0; i < 4; ++i) {
      auto [cost, request] = random.Next({.loops = 1, .pages = pages});
      request = {.end = int64_t{64} * pages, .drain_share = request.drain_share};
      const double planned = Objective(PlanChunks(cost, request), request);
      const double best =
          DynamicProgram(cost.stages.front(), pages, request.drain_share * (cost.shape.ranks - 1))
              .Best(kTolerance);
      std::printf("%d pages, %d ranks: %.7f of the best\n", pages, cost.shape.ranks,
                  planned / best);
      EXPECT_LE(planned / best, 1 + 1e-6);
      EXPECT_GE(planned / best, 1 - kTolerance - 1e-9);
    }
  }
}

// Processor time of the calling thread.
double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The quickest of some, since neighbours take caches away.
double SecondsToPlan(const PipelineCost& cost, const ChunkRequest& request) {
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 5; ++run) {
    const double begin = ThreadSeconds();
    EXPECT_EQ(PlanChunks(cost, request).ends.back(), request.end);
    least = std::min(least, ThreadSeconds() - begin);
  }
  return least;
}

// A million tokens, and prompts so short that most sequences are tried.
TEST(ChunkPlannerSlowTest, PlansTakeFiveMilliseconds) {
  double longest = 0;
  double longest_short = 0;
  RandomModels random(17);
  for (int i = 0; i < 24; ++i) {
    auto [cost, request] = random.Next({.loops = 1 + i % 4, .pages = 48, .unequal = i % 3 == 0});
    longest_short = std::max(longest_short, SecondsToPlan(cost, request));
    longest = std::max(longest, SecondsToPlan(cost, {.end = int64_t{1} << 20}));
  }
  std::printf("longest plan of a million tokens %.2f ms, of 48 pages %.2f ms\n", 1e3 * longest,
              1e3 * longest_short);
  EXPECT_LE(longest, kSlack * 5e-3);
  EXPECT_LE(longest_short, kSlack * 5e-3);
}

TEST(ChunkPlannerSlowTest, OfIdenticalStagesNoSplitIsBetter) {
  EXPECT_LE(WorstRatio(1, 11), 1 + 1e-9);
}

TEST(ChunkPlannerSlowTest, OfLoopedStagesNoSplitIsMuchBetter) {
  EXPECT_LE(WorstRatio(2, 12), 1.005);
}

}  // namespace
}  // namespace longspan::plan
