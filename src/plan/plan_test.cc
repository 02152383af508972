// Layer split, chunk lengths and the text of step plans.
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/chunk_plan.h"
#include "plan/layer_split.h"
#include "plan/step_plan.h"

namespace longspan::plan {
namespace {

double WorstStage(std::span<const double> costs, const std::vector<LayerRange>& ranges) {
  double worst = 0;
  for (const LayerRange& range : ranges)
    worst = std::max(worst,
                     std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0));
  return worst;
}

// Every way to cut [begin, layers) into `stages` parts.
double BruteForce(std::span<const double> costs, int begin, int stages) {
  const int layers = static_cast<int>(costs.size());
  if (stages == 1) return std::accumulate(costs.begin() + begin, costs.end(), 0.0);
  double best = 1e300;
  double first = 0;
  for (int end = begin + 1; end <= layers - (stages - 1); ++end) {
    first += costs[end - 1];
    best = std::min(best, std::max(first, BruteForce(costs, end, stages - 1)));
  }
  return best;
}

TEST(LayerSplitTest, IsAsGoodAsEveryOtherSplit) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.1, 3.0);
  for (int round = 0; round < 200; ++round) {
    const int layers = 1 + round % 9;
    std::vector<double> costs(layers);
    for (double& c : costs) c = cost(random);
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges = SplitLayers(costs, {stages}).value();
      ASSERT_EQ(static_cast<int>(ranges.size()), stages);
      EXPECT_EQ(ranges.front().begin, 0);
      EXPECT_EQ(ranges.back().end, layers);
      for (int s = 0; s < stages; ++s) {
        EXPECT_GT(ranges[s].size(), 0);
        if (s > 0) {
          EXPECT_EQ(ranges[s].begin, ranges[s - 1].end);
        }
      }
      EXPECT_DOUBLE_EQ(WorstStage(costs, ranges), BruteForce(costs, 0, stages));
    }
  }
}

TEST(LayerSplitTest, EqualLayersGiveEqualStagesAndTheLastOneIsNotTheLargest) {
  const std::vector<double> costs(5, 1.0);
  const auto ranges = SplitLayers(costs, {2}).value();
  EXPECT_EQ(ranges[0], (LayerRange{0, 3}));
  EXPECT_EQ(ranges[1], (LayerRange{3, 5}));
}

TEST(LayerSplitTest, MoreStagesThanLayersAreRefused) {
  const std::vector<double> costs(4, 1.0);
  EXPECT_THAT(SplitLayers(costs, {5}).status().message(), testing::HasSubstr("use at most 4"));
  EXPECT_FALSE(SplitLayers(costs, {0}).ok());
}

TEST(LayerSplitTest, LoopsNeedALayerForEveryVirtualStage) {
  std::vector<double> costs(9, 1.0);
  EXPECT_THAT(SplitLayers(costs, {.ranks = 4, .loops = 3}).status().message(),
              testing::HasSubstr("needs 12 layers and the model has 9: use --virtual-stages 2"));
  EXPECT_FALSE(SplitLayers(costs, {.ranks = 2, .loops = 0}).ok());
  const auto stages = SplitLayers(costs, {.ranks = 2, .loops = 2}).value();
  EXPECT_THAT(RangesOfRank(stages, 2, 0), testing::ElementsAre(LayerRange{0, 3}, LayerRange{5, 7}));
  EXPECT_THAT(RangesOfRank(stages, 2, 1), testing::ElementsAre(LayerRange{3, 5}, LayerRange{7, 9}));
  // Both ranks get five, though 3 + 3 + 3 + 1 has no larger stage.
  costs.push_back(1.0);
  EXPECT_EQ(SplitLayers(costs, {.ranks = 2, .loops = 2}).value()[2], (LayerRange{6, 8}));
}

TEST(LayerSplitTest, TheEndsCountAsLayersDo) {
  const std::vector<double> costs(8, 1.0);
  const auto ranges = SplitLayers(costs, {.ranks = 2}, {.embedding = 0.5, .head = 2.5}).value();
  EXPECT_EQ(ranges[0], (LayerRange{0, 5}));
  const auto other = SplitLayers(costs, {.ranks = 2}, {.embedding = 2.5, .head = 0.5}).value();
  EXPECT_EQ(other[0], (LayerRange{0, 3}));
}

TEST(LayerSplitTest, ParsesAPartition) {
  const auto ranges = ParseLayerPartition("15,15,15,16", 61, {4}).value();
  EXPECT_EQ(ranges[3], (LayerRange{45, 61}));
  EXPECT_EQ(ParseLayerPartition("15,15,15,16", 61, {.ranks = 2, .loops = 2}).value(), ranges);
  for (const char* bad : {"", "15,15,15", "15,15,15,15", "0,61,0,0", "a,b,c,d", "61,",
                          "15,15,15,-16", "2147483647,2147483647,2147483647,2147483647"}) {
    EXPECT_EQ(ParseLayerPartition(bad, 61, {4}).status().code(), base::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(ChunkPlanTest, FixedChunksCoverThePromptAndKeepTheirBorders) {
  const FixedChunks chunks{.size = 100};
  EXPECT_EQ(chunks.NextEnd(0, 250, 1000), 100);
  EXPECT_EQ(chunks.NextEnd(200, 250, 1000), 250);
  EXPECT_EQ(chunks.NextEnd(0, 250, 30), 30);
  EXPECT_EQ(chunks.NextEnd(30, 250, 1000), 100);
}

TEST(StepPlanTest, TextShowsEveryPart) {
  StepPlan plan{.number = {7}, .epoch = {1}};
  plan.released = {{3}};
  plan.started = {
      {.sequence = {4}, .sampling = {.temperature = 0.5}, .prompt = {1, 2}, .output = {}}};
  plan.slices = {
      {.sequence = {4}, .begin = 64, .tokens = {TokenSource::Literal(5)}, .new_pages = {9}},
      {.sequence = {2}, .begin = 8, .tokens = {TokenSource::Sampled({6}, 1)}, .new_pages = {}}};
  plan.logits_rows = {{.slice = 1, .position = 8, .sample = true}};
  EXPECT_EQ(plan.rows(), 2);
  EXPECT_EQ(ToText(plan),
            "plan 7 epoch 1\n"
            "release 3\n"
            "start 4 temperature=0.5 top_k=0 top_p=1 min_p=0 seed=0 penalties=1,0,0 top_logprobs=0 "
            "prompt=[1 2] output=[]\n"
            "slice 4 [64, 65) pages=[9] tokens=[5]\n"
            "slice 2 [8, 9) pages=[] tokens=[plan6.1]\n"
            "logits slice=1 position=8 sample\n");
}

}  // namespace
}  // namespace longspan::plan
