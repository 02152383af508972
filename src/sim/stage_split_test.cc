#include "sim/stage_split.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "sim/hardware_file.h"

namespace longspan::sim {
namespace {

// Layers with experts, whose weights are many and of which a row passes few, and dense ones.
plan::HardwareCost Cost() {
  spec::ModelSpec model;
  model.vocab_size = 1000;
  model.hidden_size = 2048;
  model.intermediate_size = 16384;
  model.attention = {.heads = 16, .kv_heads = 4, .head_dim = 128};
  model.moe = {.experts = 64, .experts_per_token = 2, .intermediate_size = 2048};
  model.feed_forward.assign(16, spec::FeedForwardKind::kDense);
  model.feed_forward.resize(32, spec::FeedForwardKind::kMoe);
  return plan::HardwareCost(
      {.model = model,
       .mesh = {.pp = 2},
       .hardware = *LoadHardware(std::string(LONGSPAN_SOURCE_DIR) + "/hardware/h200.json", {})});
}

TEST(StageSplitTest, LayersAreSplitByTimeAsLongAsTheyFit) {
  const plan::HardwareCost cost = Cost();
  const plan::PipelineShape shape = {2, 1};
  StageLoad load = {.prompt_tokens = 8192, .memory_bytes = 1e15};
  const auto by_time = SplitByTimeAndMemory(cost, shape, load);
  ASSERT_TRUE(by_time.ok()) << by_time.status().message();
  const double most = FullestRankBytes(cost.deployment(), 2, *by_time, load);
  load.memory_bytes = most;
  EXPECT_EQ(*SplitByTimeAndMemory(cost, shape, load), *by_time);

  load.memory_bytes = 0.9 * most;
  const auto fitting = SplitByTimeAndMemory(cost, shape, load);
  ASSERT_TRUE(fitting.ok()) << fitting.status().message();
  EXPECT_LE(FullestRankBytes(cost.deployment(), 2, *fitting, load), load.memory_bytes);
  EXPECT_GT(fitting->front().size(), by_time->front().size());

  load.memory_bytes = 1;
  EXPECT_EQ(*SplitByTimeAndMemory(cost, shape, load), *by_time);
}

double SlowestStage(std::span<const double> seconds, std::span<const plan::LayerRange> stages) {
  double slowest = 0;
  for (const plan::LayerRange& stage : stages)
    slowest = std::max(
        slowest, std::accumulate(seconds.begin() + stage.begin, seconds.begin() + stage.end, 0.0));
  return slowest;
}

// Of all splits into three that fit, none has a faster slowest stage.
TEST(StageSplitTest, NoSplitThatFitsIsFaster) {
  const plan::HardwareCost cost = Cost();
  StageLoad load = {.prompt_tokens = 8192, .memory_bytes = 1e15};
  const std::vector<double> seconds = plan::LayerSeconds(cost, 4096, 4096);
  const auto free = SplitByTimeAndMemory(cost, {3, 1}, load);
  const double most = FullestRankBytes(cost.deployment(), 3, *free, load);
  int bound = 0;
  for (const double share : {0.95, 0.85, 0.75, 0.7}) {
    load.memory_bytes = share * most;
    double best = std::numeric_limits<double>::infinity();
    for (int first = 1; first < 31; ++first) {
      for (int second = first + 1; second < 32; ++second) {
        const std::vector<plan::LayerRange> stages = {{0, first}, {first, second}, {second, 32}};
        if (FullestRankBytes(cost.deployment(), 3, stages, load) <= load.memory_bytes)
          best = std::min(best, SlowestStage(seconds, stages));
      }
    }
    if (!std::isfinite(best)) continue;
    const auto split = SplitByTimeAndMemory(cost, {3, 1}, load);
    EXPECT_LE(FullestRankBytes(cost.deployment(), 3, *split, load), load.memory_bytes) << share;
    EXPECT_NEAR(SlowestStage(seconds, *split), best, 1e-9 * best) << share;
    if (best > 1.001 * SlowestStage(seconds, *free)) ++bound;
  }
  EXPECT_GE(bound, 1);
}

TEST(StageSplitTest, RanksWithLoopsFitWithAllTheirStages) {
  const plan::HardwareCost cost = Cost();
  const plan::PipelineShape shape = {2, 2};
  StageLoad load = {.prompt_tokens = 8192, .memory_bytes = 1e15};
  const auto free = SplitByTimeAndMemory(cost, shape, load);
  const double most = FullestRankBytes(cost.deployment(), 2, *free, load);
  load.memory_bytes = 0.97 * most;
  const auto split = SplitByTimeAndMemory(cost, shape, load);
  ASSERT_TRUE(split.ok()) << split.status().message();
  EXPECT_LE(FullestRankBytes(cost.deployment(), 2, *split, load), load.memory_bytes);
}

}  // namespace
}  // namespace longspan::sim
