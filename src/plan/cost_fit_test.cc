#include "plan/cost_fit.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "plan/urgency.h"

namespace longspan::plan {
namespace {

constexpr ChunkCost kTrue = {
    .per_step = 2e-3, .per_prefix_token = 1e-8, .per_token = 2e-4, .per_pair = 3e-9};

StepWork Work(int64_t begin, int64_t end, int64_t top_k = 0) {
  StepWork work;
  work.AddChunk(begin, end, top_k);
  return work;
}

// Chunks of a long prompt, as `cost` has them.
void LearnPrompt(CostFit& fit, const ChunkCost& cost, int chunks, int64_t tokens = 512) {
  for (int i = 0; i < chunks; ++i) {
    const StepWork work =
        Work(tokens * i, tokens * (i + 1) - (i % 4 == 3 ? tokens / 3 : 0), cost.top_k);
    fit.Add(work, cost.Seconds(work));
  }
}

double Error(const CostFit& fit, const ChunkCost& cost, int64_t begin, int64_t end) {
  const StepWork work = Work(begin, end, cost.top_k);
  return std::abs(fit.cost().Seconds(work) / cost.Seconds(work) - 1);
}

TEST(ChunkCostTest, WorkAddsUp) {
  for (const int64_t top_k : {0, 200, 2048}) {
    ChunkCost cost = kTrue;
    cost.top_k = top_k;
    cost.per_index_pair = 1e-9;
    cost.per_selected_pair = 5e-9;
    for (const int64_t middle : {100, 250, 1000})
      EXPECT_NEAR(cost.Seconds(50, middle) + cost.Seconds(middle, 3000),
                  cost.Seconds(50, 3000) + cost.per_step + cost.per_prefix_token * middle, 1e-9);
  }
}

TEST(ChunkCostTest, AChunksPairsAreThoseOfItsRows) {
  EXPECT_EQ(Work(10, 13).pairs, 13 * 13 - 10 * 10);
  const StepWork sparse = Work(10, 30, 20);
  EXPECT_EQ(sparse.dense_pairs, 20 * 20 - 10 * 10);
  EXPECT_EQ(sparse.selected_pairs, 10 * 2 * 20);
  EXPECT_EQ(sparse.pairs, 30 * 30 - 10 * 10);
}

TEST(CostFitTest, LearnsALongPromptAndKnowsALongerOne) {
  CostFit fit({.per_step = 1e-4, .per_prefix_token = 1e-8, .per_token = 1e-3, .per_pair = 1e-8});
  LearnPrompt(fit, kTrue, 40);
  EXPECT_LT(Error(fit, kTrue, 0, 64), 0.05);
  EXPECT_LT(Error(fit, kTrue, 100'000, 100'512), 0.02);
  EXPECT_LT(Error(fit, kTrue, 1'000'000, 1'000'512), 0.02);
  EXPECT_LT(fit.error(), 0.01);
}

TEST(CostFitTest, LearnsSparseAttention) {
  const ChunkCost sparse = {.per_step = 1e-3,
                            .per_token = 1e-4,
                            .per_pair = 3e-9,
                            .per_index_pair = 5e-10,
                            .per_selected_pair = 9e-9,
                            .top_k = 2048};
  CostFit fit({.per_step = 1e-3,
               .per_token = 2e-4,
               .per_pair = 1e-9,
               .per_index_pair = 1e-9,
               .per_selected_pair = 1e-9,
               .top_k = 2048});
  LearnPrompt(fit, sparse, 60);
  EXPECT_LT(Error(fit, sparse, 1024, 1536), 0.03);
  EXPECT_LT(Error(fit, sparse, 200'000, 200'512), 0.03);
}

TEST(CostFitTest, OneMeasurementGivesTheLevelAndThePriorTheRest) {
  CostFit fit(kTrue);
  EXPECT_EQ(fit.error(), 1);
  const ChunkCost slow = Scaled(kTrue, 7);
  fit.Add(Work(0, 512), slow.Seconds(0, 512));
  EXPECT_LT(Error(fit, slow, 0, 512), 1e-6);
  EXPECT_LT(Error(fit, slow, 50'000, 50'100), 1e-3);
}

TEST(CostFitTest, TheErrorIsThatOfPredictions) {
  CostFit fit(Scaled(kTrue, 3));
  fit.Add(Work(0, 512), kTrue.Seconds(0, 512));
  EXPECT_EQ(fit.error(), 1);
  fit.Add(Work(512, 1024), kTrue.Seconds(512, 1024));
  EXPECT_LT(fit.error(), 1e-3);
  // As far off to either side.
  for (const double factor : {1.25, 0.8}) {
    CostFit other(kTrue);
    other.Add(Work(0, 512), kTrue.Seconds(0, 512));
    other.Add(Work(512, 1024), factor * kTrue.Seconds(512, 1024));
    EXPECT_NEAR(other.error(), std::log(1.25), 1e-3);
  }
}

TEST(CostFitTest, StepsOfSeveralSlicesCostTheirSumAndOneStep) {
  CostFit fit({.per_step = 1e-2, .per_token = 1e-4, .per_pair = 1e-9, .per_decode_row = 1e-4});
  ChunkCost truth = kTrue;
  truth.per_decode_row = 5e-4;
  truth.per_decode_position = 2e-8;
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    StepWork work;
    for (unsigned slice = 0; slice < 1 + random() % 3; ++slice) {
      const int64_t begin = random() % 30'000;
      work.AddChunk(begin, begin + 100 + random() % 400, 0);
    }
    for (unsigned row = 0; row < random() % 9; ++row) work.AddDecodeRow(random() % 20'000, 0);
    fit.Add(work, truth.Seconds(work));
  }
  StepWork work = Work(2000, 2512);
  work.AddChunk(20'000, 20'100, 0);
  work.AddDecodeRow(10'000, 0);
  EXPECT_NEAR(fit.cost().Seconds(work) / truth.Seconds(work), 1, 0.01);
}

TEST(CostFitTest, NoiseAndABusyMachineAreSurvived) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.05);
  CostFit fit({.per_step = 1e-3, .per_token = 1e-3, .per_pair = 1e-8});
  for (int i = 0; i < 64; ++i) {
    const StepWork work = Work(1024 * i, 1024 * i + (i % 3 == 0 ? 200 : 512));
    fit.Add(work, kTrue.Seconds(work) * noise(random) * (i % 8 == 5 ? 6 : 1));
  }
  EXPECT_LT(Error(fit, kTrue, 0, 512), 0.1);
  EXPECT_LT(Error(fit, kTrue, 60'000, 60'512), 0.1);
  EXPECT_LT(fit.error(), 0.15);
}

// The worst one in ten, either way.
TEST(CostFitTest, OneOutlierInTenChangesLittle) {
  for (const double factor : {10.0, 0.1}) {
    CostFit fit(Scaled(kTrue, 3));
    for (int i = 0; i < 60; ++i) {
      const StepWork work = Work(512 * i, 512 * (i + 1));
      fit.Add(work, kTrue.Seconds(work) * (i % 10 == 4 ? factor : 1));
    }
    EXPECT_LT(Error(fit, kTrue, 0, 512), 0.05) << factor;
    EXPECT_LT(Error(fit, kTrue, 60'000, 60'512), 0.05) << factor;
  }
}

TEST(CostFitTest, WhatIsNoTimeIsIgnored) {
  CostFit fit(kTrue);
  LearnPrompt(fit, kTrue, 20);
  const ChunkCost before = fit.cost();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, std::nan(""), infinity, 1e300}) fit.Add(Work(0, 512), bad);
  EXPECT_EQ(fit.cost(), before);
  EXPECT_EQ(fit.measurements(), 20);
}

// Measurements that all were wrong, from the begin or after right ones, and then right again.
TEST(CostFitTest, RecoversWithinTwentyChunks) {
  for (const double factor : {10.0, 0.1}) {
    for (const int right_before : {0, 30, 100}) {
      CostFit fit({.per_step = 1e-4, .per_token = 1e-3, .per_pair = 1e-8});
      LearnPrompt(fit, kTrue, right_before);
      LearnPrompt(fit, Scaled(kTrue, factor), 100);
      LearnPrompt(fit, kTrue, 20);
      EXPECT_LT(Error(fit, kTrue, 4096, 4608), 0.05) << factor << " after " << right_before;
    }
  }
}

TEST(CostFitTest, NoCoefficientIsNegative) {
  CostFit fit({.per_step = 1e-3, .per_token = 1e-3, .per_pair = 1e-8});
  // Deeper chunks are faster: only a machine that got faster explains that.
  for (int i = 0; i < 20; ++i) fit.Add(Work(512 * i, 512 * (i + 1)), 1.0 / (i + 1));
  const ChunkCost cost = fit.cost();
  for (const double c : {cost.per_step, cost.per_prefix_token, cost.per_token, cost.per_pair})
    EXPECT_GE(c, 0);
  EXPECT_GT(cost.Seconds(0, 1), 0);
  EXPECT_GE(cost.Seconds(1'000'000, 1'000'001), cost.Seconds(0, 1));
}

PipelineFit TwoRanks(int loops = 1) {
  return PipelineFit({.shape = {.ranks = 2, .loops = loops},
                      .stages = std::vector<ChunkCost>(static_cast<size_t>(2 * loops), kTrue)});
}

TEST(PipelineFitTest, EveryRankHasItsOwnCost) {
  PipelineFit fit = TwoRanks(2);
  const ChunkCost slow = Scaled(kTrue, 3);
  for (int64_t at = 0; at < 20 * 512; at += 512)
    fit.Add(Work(at, at + 512),
            std::vector{kTrue.Seconds(at, at + 512), slow.Seconds(at, at + 512)});
  EXPECT_NEAR(fit.rank_costs()[0].Seconds(9000, 9512) / kTrue.Seconds(9000, 9512), 1, 1e-3);
  EXPECT_NEAR(fit.Seconds(9000, 9512) / slow.Seconds(9000, 9512), 1, 1e-3);
  // Two loops of a rank share its time.
  EXPECT_NEAR(fit.cost().at(1, 0).Seconds(9000, 9512) * 2 / slow.Seconds(9000, 9512), 1, 1e-3);
}

TEST(PipelineFitTest, WhatIsNotPredictedIsNotWorthKeeping) {
  std::mt19937 random(9);
  for (const bool sane : {true, false}) {
    PipelineFit fit = TwoRanks();
    for (int64_t at = 0; at < 40 * 512; at += 512) {
      const double seconds = kTrue.Seconds(at, at + 512);
      const double other = sane ? 1 : std::exp(static_cast<double>(random() % 100) / 10);
      EXPECT_EQ(fit.IsWorthKeeping(), sane && at >= 16 * 512);
      fit.Add(Work(at, at + 512), std::vector{seconds, seconds * other});
    }
  }
}

TEST(PipelineFitTest, TheLongestChunkTakesTheTimeThatIsLeft) {
  PipelineFit fit = TwoRanks();
  StepWork decodes;
  for (int row = 0; row < 16; ++row) decodes.AddDecodeRow(1000, 0);
  for (const int64_t begin : {0, 1000, 500'000}) {
    const int64_t rows = fit.LongestChunk(decodes, begin, 100'000, 0.05);
    StepWork work = decodes;
    work.AddChunk(begin, begin + rows, 0);
    EXPECT_LE(fit.Seconds(work), 0.05);
    work = decodes;
    work.AddChunk(begin, begin + rows + 1, 0);
    EXPECT_GT(fit.Seconds(work), 0.05);
  }
  EXPECT_EQ(fit.LongestChunk({}, 0, 512, 1e9), 512);
  EXPECT_EQ(fit.LongestChunk({}, 0, 512, 0), 0);
  EXPECT_EQ(fit.LongestChunk({}, 0, 512, -1), 0);
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
