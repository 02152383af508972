// The simulator says what the runtime does: the same plans, in the same time.
//
// The runtime waits instead of computing, but all else is real: leader, transports, threads. Where
// a machine that others use wakes threads late, that only ever adds; so each figure is the best of
// up to four runs, and a later one waits twice as long for everything.
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

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
  // A stage that is alone computes its ranges in one go.
  plan::PipelineShape shape() const { return {ranks, ranks == 1 ? 1 : loops}; }
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

// What both kinds of ranks are given.
struct Conditions {
  sim::Workload workload;
  support::TimedCost layer;
  engine::SchedulerOptions scheduler = Scheduler();
  int64_t max_total_tokens = 1 << 21;
};

// Submits as a server does: between the turns of the engine, what has come by then.
void Serve(engine::Engine& engine, const sim::Workload& workload, std::vector<FinishSink>& sinks) {
  using std::chrono::duration_cast;
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  const auto arrival = [&](size_t i) {
    return begin +
           duration_cast<steady_clock::duration>(std::chrono::duration<double>(workload[i].at_s));
  };
  for (size_t next = 0; next < workload.size() || !engine.idle();) {
    if (engine.idle()) std::this_thread::sleep_until(arrival(next));
    for (; next < workload.size() && arrival(next) <= steady_clock::now(); ++next) {
      const auto id = engine.Submit(
          {.prompt = sim::PromptTokens(workload[next], static_cast<int64_t>(next) + 1, kTimedVocab),
           .max_tokens = workload[next].output_tokens,
           .ignore_end_tokens = true},
          &sinks[next]);
      ASSERT_TRUE(id.ok()) << id.status().message();
    }
    ASSERT_TRUE(engine.Advance().ok());
  }
}

Outcome RunReal(const Pipeline& pipeline, const Conditions& run) {
  Outcome outcome;
  std::vector<FinishSink> sinks(run.workload.size());
  const auto engine = StartTimed({.stages = pipeline.ranks,
                                  .virtual_stages = pipeline.loops,
                                  .layers = pipeline.layers(),
                                  .cost = run.layer,
                                  .scheduler = run.scheduler,
                                  .max_total_tokens = run.max_total_tokens,
                                  .token = 0,  // as simulated stages
                                  .plans = &outcome.plans});
  Serve(*engine, run.workload, sinks);
  for (const FinishSink& sink : sinks)
    outcome.makespan_s = std::max(outcome.makespan_s, sink.seconds);
  return outcome;
}

Outcome RunSimulated(const Pipeline& pipeline, const Conditions& run) {
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
  setup.scheduler = run.scheduler;
  setup.context_length = 1 << 20;
  setup.max_total_tokens = run.max_total_tokens;
  setup.keep_plans = true;
  const support::TimedCost cost = run.layer;
  const int ranges = pipeline.loops / pipeline.shape().loops;
  setup.times = sim::PipelineTimes{
      .compute_s =
          [cost, ranges](const plan::StepPlan& plan, int, int) {
            double seconds = cost.per_call;
            for (const plan::Slice& slice : plan.slices)
              seconds += cost.Layer(slice.begin, slice.end() - slice.begin) - cost.per_call;
            return ranges * seconds;
          },
      .transfer_s = [](const plan::StepPlan&, int) { return 0.0; },
      .latency_s = [](int) { return 0.0; }};
  auto result = sim::Simulate(setup, run.workload);
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
    const Conditions run = {workload, pipeline().Layer(chunk_s)};
    const Outcome predicted = RunSimulated(pipeline(), run);
    const Outcome measured = RunReal(pipeline(), run);
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
      const Conditions run = {workload, pipeline().Layer(chunk_s)};
      predicted = RunSimulated(pipeline(), run);
      measured = RunReal(pipeline(), run);
      if (measured.plans == predicted.plans) return;
      fmt::print("{}, chunks of {:.0f} ms: other plans\n", pipeline().ToString(), chunk_s * 1e3);
    }
  }
  EXPECT_EQ(measured.plans, predicted.plans);
}

// A kind of run whose plans are to be the predicted ones, on some pipelines.
struct Scenario {
  const char* name;
  // Whose chunks take so long on a rank, all loops together.
  Conditions (*make)(const Pipeline& pipeline, double chunk_s);
  // What the plans must show, so that it is the kind of run that it is meant to be.
  bool (*is_one)(const std::string& plans);
};

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A step by itself takes an eighth of a chunk, so that steps of single rows are no instants.
support::TimedCost WithStep(support::TimedCost layer, double chunk_s, const Pipeline& pipeline) {
  layer.per_call = chunk_s / pipeline.loops / 8;
  return layer;
}

// The costs of all stages are known, as from an earlier run.
Conditions Planned(const Pipeline& pipeline, double chunk_s) {
  constexpr int64_t kTokens = 256;
  const double layer_s = chunk_s / pipeline.loops;
  const support::TimedCost layer = {.per_call = layer_s / 4,
                                    .per_row = layer_s / 2 / kTokens,
                                    .per_pair = layer_s / 8 / kTokens / 1024};
  Conditions run = {{{.prompt_tokens = 3000, .output_tokens = 2},
                     {.at_s = 60 * chunk_s, .prompt_tokens = 1000, .output_tokens = 1}},
                    layer};
  const double ranges = pipeline.loops / pipeline.shape().loops;
  const plan::ChunkCost cost = {.per_step = ranges * layer.per_call,
                                .per_token = ranges * layer.per_row,
                                .per_pair = ranges * layer.per_pair,
                                .per_decode_row = ranges * layer.per_row,
                                .per_decode_position = 2 * ranges * layer.per_pair};
  run.scheduler.chunk_tokens = 1024;
  run.scheduler.chunk_policy.kind = engine::ChunkPolicy::Kind::kPlanned;
  run.scheduler.prior = {
      pipeline.shape(),
      std::vector<plan::ChunkCost>(static_cast<size_t>(pipeline.shape().stages()), cost)};
  return run;
}

// One after the other: the second begins behind what the first one has left.
Conditions PrefixHits(const Pipeline& pipeline, double chunk_s) {
  Conditions run = {
      {{.prompt_tokens = 150, .output_tokens = 3, .prefix_id = 1, .prefix_tokens = 128},
       {.prompt_tokens = 190, .output_tokens = 2, .prefix_id = 1, .prefix_tokens = 128}},
      WithStep(pipeline.Layer(chunk_s), chunk_s, pipeline)};
  run.scheduler.max_running = 1;
  run.scheduler.reuse_prefixes = true;
  return run;
}

// Two and a half times sixteen rows fit beside the decodes.
Conditions DecodeStall(const Pipeline& pipeline, double chunk_s) {
  Conditions run = {
      {{.prompt_tokens = 20, .output_tokens = 40}, {.prompt_tokens = 301, .output_tokens = 1}},
      WithStep(pipeline.Layer(chunk_s), chunk_s, pipeline)};
  run.layer.per_pair = 0;
  run.scheduler.chunk_tokens = 64;
  run.scheduler.max_decode_stall_s = pipeline.loops * (run.layer.per_call + 41 * run.layer.per_row);
  const double ranges = pipeline.loops / pipeline.shape().loops;
  run.scheduler.prior = {pipeline.shape(), std::vector<plan::ChunkCost>(
                                               static_cast<size_t>(pipeline.shape().stages()),
                                               {.per_step = ranges * run.layer.per_call,
                                                .per_token = ranges * run.layer.per_row,
                                                .per_decode_row = ranges * run.layer.per_row})};
  return run;
}

// Requests that come while others are computed, and when nothing is.
Conditions Arriving(const Pipeline& pipeline, double chunk_s, double shift) {
  return {{{.prompt_tokens = 9 * kRows + 5, .output_tokens = 2},
           {.at_s = (3 + shift) * chunk_s, .prompt_tokens = 4 * kRows + 3, .output_tokens = 3},
           {.at_s = (6 + shift) * chunk_s, .prompt_tokens = 7, .output_tokens = 1},
           {.at_s = (80 + shift) * chunk_s, .prompt_tokens = 2 * kRows, .output_tokens = 2}},
          WithStep(pipeline.Layer(chunk_s), chunk_s, pipeline)};
}

// At a moment when coming a little earlier or later makes no difference.
Conditions LateArrivals(const Pipeline& pipeline, double chunk_s) {
  constexpr double kLittle = 0.12;
  const auto plans = [&](double shift) {
    return RunSimulated(pipeline, Arriving(pipeline, chunk_s, shift)).plans;
  };
  double shift = 0.2;
  while (shift < 2 &&
         (plans(shift - kLittle) != plans(shift) || plans(shift + kLittle / 2) != plans(shift) ||
          plans(shift + kLittle) != plans(shift)))
    shift += 0.05;
  EXPECT_LT(shift, 2) << "no moment makes no difference";
  return Arriving(pipeline, chunk_s, shift);
}

// Two grow from three pages to four and five, and there are seven: when both wait for one, the one
// behind gives back its own and starts again.
Conditions FullCache(const Pipeline& pipeline, double chunk_s) {
  Conditions run = {
      {{.prompt_tokens = 120, .output_tokens = 150}, {.prompt_tokens = 120, .output_tokens = 150}},
      WithStep(pipeline.Layer(chunk_s), chunk_s, pipeline)};
  run.max_total_tokens = 7 * 64;
  return run;
}

const Scenario kScenarios[] = {
    {"Planned", Planned, [](const std::string& plans) { return Count(plans, "slice 1 ") >= 4; }},
    {"PrefixHits", PrefixHits,
     [](const std::string& plans) { return Count(plans, "slice 2 [128, ") == 1; }},
    {"DecodeStall", DecodeStall,
     [](const std::string& plans) { return Count(plans, "slice 2 ") > 301 / 64 + 1; }},
    {"LateArrivals", LateArrivals,
     [](const std::string& plans) { return Count(plans, "slice 4 ") > 1; }},
    {"FullCache", FullCache, [](const std::string& plans) {
       return Count(plans, "slice 1 [0, ") + Count(plans, "slice 2 [0, ") == 3;
     }}};

class ScenarioTest : public ::testing::TestWithParam<std::tuple<Pipeline, Scenario>> {};

TEST_P(ScenarioTest, RealRanksGetThePredictedPlans) {
  const auto& [pipeline, scenario] = GetParam();
  Outcome predicted;
  Outcome measured;
  // On a busy machine ranks may be late.
  for (int round = 0; round < 4; ++round) {
    for (const double chunk_s : kChunkSeconds) {
      const Conditions run = scenario.make(pipeline, chunk_s);
      predicted = RunSimulated(pipeline, run);
      ASSERT_TRUE(scenario.is_one(predicted.plans)) << predicted.plans;
      measured = RunReal(pipeline, run);
      if (measured.plans == predicted.plans) return;
      fmt::print("{} {}, chunks of {:.0f} ms: other plans\n", scenario.name, pipeline.ToString(),
                 chunk_s * 1e3);
    }
  }
  EXPECT_EQ(measured.plans, predicted.plans);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ScenarioTest,
                         ::testing::Combine(::testing::Values(Pipeline{1, 1}, Pipeline{2, 1},
                                                              Pipeline{4, 2}),
                                            ::testing::ValuesIn(kScenarios)),
                         [](const auto& given) {
                           const Pipeline& pipeline = std::get<0>(given.param);
                           return fmt::format("{}P{}V{}", std::get<1>(given.param).name,
                                              pipeline.ranks, pipeline.loops);
                         });

INSTANTIATE_TEST_SUITE_P(Pipelines, ConformanceTest,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(1, 2, 4)),
                         [](const auto& param) {
                           return fmt::format("P{}V{}", std::get<0>(param.param),
                                              std::get<1>(param.param));
                         });

}  // namespace
}  // namespace longspan::testing
