#include "sim/stage_split.h"

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
  const double most = FullestRankBytes(cost, 2, *by_time, load);
  load.memory_bytes = most;
  EXPECT_EQ(*SplitByTimeAndMemory(cost, shape, load), *by_time);

  load.memory_bytes = 0.9 * most;
  const auto fitting = SplitByTimeAndMemory(cost, shape, load);
  ASSERT_TRUE(fitting.ok()) << fitting.status().message();
  EXPECT_LE(FullestRankBytes(cost, 2, *fitting, load), load.memory_bytes);
  EXPECT_GT(fitting->front().size(), by_time->front().size());

  load.memory_bytes = 1;
  EXPECT_EQ(*SplitByTimeAndMemory(cost, shape, load), *by_time);
}

}  // namespace
}  // namespace longspan::sim
