// The simulator says what the runtime does: the same plans, in the same time.
//
// The runtime waits instead of computing, but all else is real: leader, transports, threads. Where
// a machine that others use wakes threads late, that only ever adds; so each figure is the best of
// up to four runs, and a later one waits twice as long for everything.
#include <cmath>
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/simulation.h"
#include "tests/engine/engine_harness.h"
#include "tests/engine/timed_engine.h"

namespace longspan::testing {
namespace {

constexpr int64_t kRows = 16;  // of a chunk
constexpr double kTolerance = 0.02;
// Of a chunk on a rank, all loops together; run by run.
constexpr double kChunkSeconds[] = {8e-3, 16e-3, 32e-3, 64e-3};

struct Pipeline {
  int ranks;
  int loops;

  std::string ToString() const { return fmt::format("P {} V {}", ranks, loops); }
  int layers() const { return ranks * loops; }
  // One layer for every rank and loop; half of a chunk's time at the beginning is by its rows, and
  // later chunks of 512 positions take twice as long.
  support::TimedCost Layer(double chunk_s) const {
    const double layer = chunk_s / loops;
    return {.per_row = layer / 2 / kRows, .per_pair = layer / 4 / kRows / 256};
  }
};

engine::SchedulerOptions Scheduler() {
  engine::SchedulerOptions options;
  options.chunk_tokens = kRows;
  options.max_running = 8;
  options.reuse_prefixes = false;
  return options;
}

class FinishSink : public engine::OutputSink {
 public:
  void OnFinish(plan::SequenceId, engine::FinishReason, const engine::FinishInfo& info) override {
    seconds = info.finish_s;
  }
  double seconds = 0;
};

struct Outcome {
  double makespan_s = 0;
  std::string plans;
};

Outcome RunReal(const Pipeline& pipeline, const sim::Workload& workload, double chunk_s) {
  Outcome outcome;
  const auto engine = StartTimed({.stages = pipeline.ranks,
                                  .virtual_stages = pipeline.loops,
                                  .layers = pipeline.layers(),
                                  .cost = pipeline.Layer(chunk_s),
                                  .scheduler = Scheduler(),
                                  .token = 0,  // as simulated stages
                                  .plans = &outcome.plans});
  std::vector<FinishSink> sinks(workload.size());
  for (size_t i = 0; i < workload.size(); ++i) {
    const auto id = engine->Submit(
        {.prompt = sim::PromptTokens(workload[i], static_cast<int64_t>(i) + 1, kTimedVocab),
         .max_tokens = workload[i].output_tokens,
         .ignore_end_tokens = true},
        &sinks[i]);
    EXPECT_TRUE(id.ok()) << id.status().message();
  }
  EXPECT_TRUE(engine->RunUntilIdle().ok());
  for (const FinishSink& sink : sinks)
    outcome.makespan_s = std::max(outcome.makespan_s, sink.seconds);
  return outcome;
}

Outcome RunSimulated(const Pipeline& pipeline, const sim::Workload& workload, double chunk_s) {
  sim::SimulationSetup setup;
  setup.deployment.model.vocab_size = kTimedVocab;
  setup.deployment.model.hidden_size = 4;
  setup.deployment.model.feed_forward.assign(static_cast<size_t>(pipeline.layers()),
                                             spec::FeedForwardKind::kDense);
  setup.deployment.model.attention = {.heads = 1, .kv_heads = 1, .head_dim = 4};
  setup.deployment.mesh.pp = pipeline.ranks;
  setup.deployment.hardware.memory_bytes = 1e12;
  setup.loops = pipeline.loops;
  const std::vector<double> costs(static_cast<size_t>(pipeline.layers()), 1.0);
  setup.stages = *plan::SplitLayers(costs, {pipeline.ranks, pipeline.loops});
  setup.scheduler = Scheduler();
  setup.context_length = 1 << 20;
  setup.max_total_tokens = 1 << 21;
  setup.keep_plans = true;
  const support::TimedCost cost = pipeline.Layer(chunk_s);
  // A stage that is alone computes its ranges in one go.
  const int ranges = pipeline.ranks == 1 ? pipeline.loops : 1;
  setup.times = sim::PipelineTimes{.compute_s =
                                       [cost, ranges](const plan::StepPlan& plan, int, int) {
                                         double seconds = 0;
                                         for (const plan::Slice& slice : plan.slices)
                                           seconds +=
                                               cost.Layer(slice.begin, slice.end() - slice.begin);
                                         return ranges * seconds;
                                       },
                                   .transfer_s = [](const plan::StepPlan&, int) { return 0.0; },
                                   .latency_s = [](int) { return 0.0; }};
  auto result = sim::Simulate(setup, workload);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return {result->makespan_s, std::move(result->plans)};
}

class ConformanceTest : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  Pipeline pipeline() const { return {std::get<0>(GetParam()), std::get<1>(GetParam())}; }
};

TEST_P(ConformanceTest, APromptTakesThePredictedTime) {
  const sim::Workload workload = {{.prompt_tokens = 32 * kRows}};
  double over = 0;
  for (const double chunk_s : kChunkSeconds) {
    const Outcome predicted = RunSimulated(pipeline(), workload, chunk_s);
    const Outcome measured = RunReal(pipeline(), workload, chunk_s);
    EXPECT_EQ(measured.plans, predicted.plans);
    over = measured.makespan_s / predicted.makespan_s - 1;
    fmt::print("{}, chunks of {:.0f} ms: {:.1f} ms predicted, {:+.2f}%\n", pipeline().ToString(),
               chunk_s * 1e3, predicted.makespan_s * 1e3, 100 * over);
    if (std::abs(over) <= kTolerance) return;
    // Waiting can only take longer than asked for.
    ASSERT_GE(over, -kTolerance);
  }
  EXPECT_LE(over, kTolerance);
}

// Prompts of several lengths and outputs: what is in a plan depends on what has been committed when
// it is made.
TEST_P(ConformanceTest, AWorkloadMakesThePredictedPlans) {
  const sim::Workload workload = {{.prompt_tokens = 9 * kRows + 5, .output_tokens = 4},
                                  {.prompt_tokens = 3 * kRows, .output_tokens = 9},
                                  {.prompt_tokens = 7, .output_tokens = 2},
                                  {.prompt_tokens = 5 * kRows + 1, .output_tokens = 1}};
  Outcome predicted;
  Outcome measured;
  // Where two things happen at once, which one the leader sees first is chance for real ranks.
  for (int round = 0; round < 6; ++round) {
    for (const double chunk_s : kChunkSeconds) {
      predicted = RunSimulated(pipeline(), workload, chunk_s);
      measured = RunReal(pipeline(), workload, chunk_s);
      if (measured.plans == predicted.plans) return;
      fmt::print("{}, chunks of {:.0f} ms: other plans\n", pipeline().ToString(), chunk_s * 1e3);
    }
  }
  EXPECT_EQ(measured.plans, predicted.plans);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, ConformanceTest,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(1, 2, 4)),
                         [](const auto& param) {
                           return fmt::format("P{}V{}", std::get<0>(param.param),
                                              std::get<1>(param.param));
                         });

}  // namespace
}  // namespace longspan::testing
