#include "sim/simulation.h"

#include <numeric>

#include <gmock/gmock.h>

#include "sim/hardware_file.h"

namespace longspan::sim {
namespace {

spec::ModelSpec Model() {
  return {.vocab_size = 32000,
          .hidden_size = 4096,
          .intermediate_size = 12288,
          .context_length = 1 << 20,
          .attention = {.heads = 32, .kv_heads = 8, .head_dim = 128},
          .feed_forward = std::vector(32, spec::FeedForwardKind::kDense)};
}

SimulationSetup OnStages(int stages, int loops = 1) {
  SimulationSetup setup;
  setup.deployment.model = Model();
  setup.deployment.mesh = {.pp = stages};
  setup.deployment.hardware =
      *LoadHardware(std::string(LONGSPAN_SOURCE_DIR) + "/hardware/h200.json", {});
  setup.loops = loops;
  setup.context_length = 1 << 20;
  setup.scheduler.chunk_tokens = 4096;
  const std::vector<double> costs(32, 1.0);
  setup.stages = *plan::SplitLayers(costs, {stages, loops});
  return setup;
}

// A second for every thousand rows.
PipelineTimes PlainTimes() {
  return {.compute_s = [](const plan::StepPlan& plan, int, int) { return 1e-3 * plan.rows(); },
          .transfer_s = [](const plan::StepPlan&, int) { return 0.0; },
          .latency_s = [](int) { return 0.0; }};
}

TEST(SimulationTest, OnePromptTakesTheSumAndTheLongestChunkPerFurtherStage) {
  SimulationSetup setup = OnStages(4);
  setup.times = PlainTimes();
  const auto result = Simulate(setup, {{.prompt_tokens = 5 * 4096}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  const double chunk = 4.096;
  EXPECT_NEAR(result->requests[0].ttft_s, (5 + 3) * chunk, 1e-6);
  EXPECT_NEAR(result->bubble_share, 1 - 5.0 / 8, 1e-6);
  EXPECT_GE(result->most_pages, 5 * 64);
  EXPECT_LE(result->most_pages, 5 * 64 + 1);
}

// What was longest under way before counts no more once the pipeline has run empty.
TEST(SimulationTest, LongAfterALongPromptAShortOneIsPlannedForItself) {
  const auto run = [](const Workload& workload) {
    SimulationSetup setup = OnStages(4);
    setup.scheduler.chunk_tokens = 16384;
    setup.scheduler.chunk_policy.kind = engine::ChunkPolicy::Kind::kPlanned;
    setup.scheduler.prior = plan::PriorCost(plan::HardwareCost(setup.deployment),
                                            {.ranks = 4, .loops = 1}, setup.stages);
    const auto result = Simulate(setup, workload);
    EXPECT_TRUE(result.ok());
    return result.ok() ? result->requests.back().ttft_s : 0;
  };
  const double alone = run({{.prompt_tokens = 16384}});
  EXPECT_LE(run({{.prompt_tokens = 262'144}, {.at_s = 1000, .prompt_tokens = 16384}}),
            1.03 * alone);
}

TEST(SimulationTest, DecodingIsNoPartOfTheBubble) {
  SimulationSetup setup = OnStages(4);
  setup.times = PlainTimes();
  const auto result = Simulate(setup, {{.prompt_tokens = 5 * 4096, .output_tokens = 200}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_NEAR(result->bubble_share, 1 - 5.0 / 8, 1e-3);
}

TEST(SimulationTest, TheNextPromptFillsTheDrain) {
  SimulationSetup setup = OnStages(4);
  setup.times = PlainTimes();
  const auto result = Simulate(setup, Workload(3, {.prompt_tokens = 8 * 4096}));
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(result->makespan_s, (24 + 3) * 4.096, 0.2);
}

TEST(SimulationTest, TheSameArgumentsGiveTheSamePlans) {
  SimulationSetup setup = OnStages(2, 2);
  setup.keep_plans = true;
  setup.scheduler.max_decode_stall_s = 0.05;
  const Workload workload = {{.at_s = 0, .prompt_tokens = 20000, .output_tokens = 30},
                             {.at_s = 0.1, .prompt_tokens = 300, .output_tokens = 50},
                             {.at_s = 0.4, .prompt_tokens = 9000, .output_tokens = 3}};
  const auto first = Simulate(setup, workload);
  const auto second = Simulate(setup, workload);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_FALSE(first->plans.empty());
  EXPECT_EQ(first->plans, second->plans);
  EXPECT_EQ(first->makespan_s, second->makespan_s);
  for (const RequestOutcome& request : first->requests) {
    EXPECT_GT(request.ttft_s, 0);
    EXPECT_GE(request.finish_s, request.ttft_s);
  }
}

TEST(SimulationTest, ASharedPrefixIsComputedOnce) {
  const SimRequest request = {.prompt_tokens = 10000, .prefix_id = 1, .prefix_tokens = 8192};
  SimRequest later = request;
  later.at_s = 60;
  const auto result = Simulate(OnStages(1), {request, later});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->requests[0].cached_tokens, 0);
  EXPECT_EQ(result->requests[1].cached_tokens, 8192);
  EXPECT_LT(result->requests[1].ttft_s, result->requests[0].ttft_s / 2);
}

TEST(SimulationTest, APromptThatCannotFitIsRefusedWithItsNumber) {
  SimulationSetup setup = OnStages(1);
  setup.max_total_tokens = 64;
  const auto result = Simulate(setup, {{.prompt_tokens = 10}, {.prompt_tokens = 1000}});
  EXPECT_THAT(result.status().message(), testing::HasSubstr("request 2"));
}

}  // namespace
}  // namespace longspan::sim
