// Planned chunks in the real scheduler, over stages that only count time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/virtual_stages.h"
#include "plan/chunk_planner.h"

namespace longspan::engine {
namespace {

using testing::VirtualStages;

constexpr plan::ChunkCost kCost = {.per_step = 4e-3, .per_token = 5e-6, .per_pair = 4e-11};

double StageSeconds(const plan::StepPlan& plan) { return kCost.Seconds(WorkOf(plan, 0)); }

VirtualStages::Setup MakeSetup(int stages, ChunkPolicy::Kind kind, int64_t chunk_tokens) {
  return {
      .scheduler = {.chunk_tokens = chunk_tokens, .chunk_policy = {.kind = kind}, .stages = stages},
      .stages = stages,
      .pages = 1 << 15,
      .stage_seconds = StageSeconds};
}

plan::PipelineCost CostOf(int stages, const plan::ChunkCost& cost) {
  return {.shape = {.ranks = stages},
          .stages = std::vector<plan::ChunkCost>(static_cast<size_t>(stages), cost)};
}

// Every chunk begins where the one before ended, at a page, and all prompts are computed.
void ExpectValid(const VirtualStages& server, int64_t chunk_tokens) {
  std::map<int64_t, int64_t> computed;
  for (const plan::StepPlan& plan : server.plans()) {
    int64_t rows = 0;
    for (const plan::Slice& slice : plan.slices) {
      EXPECT_EQ(computed[slice.sequence.value], slice.begin);
      computed[slice.sequence.value] = slice.end();
      rows += static_cast<int64_t>(slice.tokens.size());
    }
    EXPECT_LE(rows, chunk_tokens + 64);
  }
  EXPECT_TRUE(server.scheduler().idle());
}

double FirstToken(const VirtualStages::Setup& setup, int64_t prompt) {
  VirtualStages server(setup);
  server.Submit(0, 32'768, 1);  // teaches
  server.Submit(100, prompt, 1);
  server.Run();
  ExpectValid(server, setup.scheduler.chunk_tokens);
  return server.outcome(2).first_token - 100;
}

TEST(PlannedChunksTest, APromptTakesAsLongAsItsBestPlan) {
  constexpr int64_t kPrompt = 131'072;
  for (const int stages : {2, 4, 8}) {
    const double best =
        plan::PlanChunks(CostOf(stages, kCost), {.end = kPrompt, .max_tokens = 16384}).makespan_s;
    auto setup = MakeSetup(stages, ChunkPolicy::Kind::kPlanned, 16384);
    // What the machine's figures say before: three times off, and in other proportions.
    setup.scheduler.prior =
        CostOf(stages, {.per_step = 3e-3, .per_token = 1.5e-5, .per_pair = 2e-10});
    EXPECT_LE(FirstToken(setup, kPrompt), 1.03 * best) << stages;
    setup.scheduler.chunk_policy.kind = ChunkPolicy::Kind::kFixed;
    EXPECT_GT(FirstToken(setup, kPrompt), 1.05 * best) << stages;
    setup.scheduler.chunk_policy.kind = ChunkPolicy::Kind::kQuadratic;
    EXPECT_GT(FirstToken(setup, kPrompt), 0.999 * best) << stages;
  }
}

TEST(PlannedChunksTest, ManyPromptsGetLongerChunksThanOneAndAreDoneSooner) {
  constexpr int kPrompts = 12;
  const auto run = [&](ChunkPolicy::Kind kind, int64_t chunk_tokens) {
    VirtualStages server(MakeSetup(8, kind, chunk_tokens));
    server.Submit(0, 16384, 1);
    for (int i = 0; i < kPrompts; ++i) server.Submit(100, 32768, 1);
    server.Run();
    ExpectValid(server, chunk_tokens);
    return std::pair(server.now() - 100, server.plans().size());
  };
  const auto [planned, planned_plans] = run(ChunkPolicy::Kind::kPlanned, 16384);
  double best_fixed = 1e9;
  for (const int64_t tokens : {512, 1024, 2048, 4096, 8192, 16384})
    best_fixed = std::min(best_fixed, run(ChunkPolicy::Kind::kFixed, tokens).first);
  EXPECT_LE(planned, 1.06 * best_fixed);
  const size_t alone =
      plan::PlanChunks(CostOf(8, kCost), {.end = 32768, .max_tokens = 16384}).ends.size();
  EXPECT_LT(planned_plans, kPrompts * alone);
}

TEST(PlannedChunksTest, PromptsOfAllLengthsAreComputedOnce) {
  std::mt19937 random(7);
  for (const auto kind :
       {ChunkPolicy::Kind::kPlanned, ChunkPolicy::Kind::kQuadratic, ChunkPolicy::Kind::kFixed}) {
    for (const int64_t chunk_tokens : {7, 64, 500, 4096}) {
      VirtualStages server(MakeSetup(3, kind, chunk_tokens));
      double at = 0;
      for (int i = 0; i < 40; ++i)
        server.Submit(at += 0.01 * static_cast<double>(random() % 8),
                      1 + random() % (i % 5 == 0 ? 3000 : 300), 1 + random() % 9);
      server.Run();
      ExpectValid(server, chunk_tokens);
    }
  }
}

TEST(PlannedChunksTest, DecodesStallNoLongerThanTheyMay) {
  auto setup = MakeSetup(2, ChunkPolicy::Kind::kPlanned, 8192);
  setup.scheduler.max_decode_stall_s = 0.02;
  VirtualStages server(setup);
  server.Submit(0, 3000, 400);
  server.Submit(1, 100'000, 1);
  server.Run();
  ExpectValid(server, 8192);
  int bounded = 0;
  for (size_t i = 0; i < server.plans().size(); ++i) {
    if (server.plan_times()[i] < 1 || server.plan_times()[i] >= server.outcome(1).finish) continue;
    // A few steps teach the model what they are like.
    EXPECT_LE(server.plan_seconds()[i], ++bounded < 40 ? 0.024 : 0.0208) << i;
  }
  EXPECT_GT(bounded, 30);
}

// Measurements that are wrong, in every way: whatever is planned is valid, and it is planned well
// again when they are right again.
TEST(PlannedChunksTest, WrongMeasurementsMakeNoWrongPlans) {
  std::mt19937 random(5);
  constexpr int64_t kPrompt = 65'536;
  const std::vector<std::function<double(double)>> lies = {
      [](double) { return std::nan(""); }, [](double) { return 0.0; },
      [](double s) { return 10 * s; },     [](double s) { return s / 10; },
      [](double) { return -1.0; },         [&](double s) { return s * (random() % 100) / 10.0; }};
  for (const auto& lie : lies) {
    Scheduler scheduler(
        {.chunk_tokens = 8192, .chunk_policy = {.kind = ChunkPolicy::Kind::kPlanned}, .stages = 4},
        1 << 12, 64);
    int64_t id = 0;
    // The chunks of a prompt, each reported as `measured` says.
    const auto run = [&](const std::function<double(double)>& measured) {
      auto sequence = std::make_unique<Sequence>();
      sequence->id = {++id};
      sequence->request.prompt.resize(kPrompt);
      for (int32_t& token : sequence->request.prompt) token = static_cast<int32_t>(random() % 1000);
      sequence->request.max_tokens = 0;
      EXPECT_TRUE(scheduler.Enqueue(std::move(sequence), {.context_length = 1 << 20}).ok());
      std::vector<int64_t> ends;
      int64_t computed = 0;
      while (computed < kPrompt) {
        const auto plan = scheduler.Next();
        if (!plan || plan->slices.size() != 1) break;
        const plan::Slice& slice = plan->slices.front();
        EXPECT_EQ(slice.begin, computed);
        computed = slice.end();
        if (computed != kPrompt) {
          EXPECT_EQ(computed % 64, 0);
        }
        EXPECT_LE(slice.tokens.size(), 8192U);
        ends.push_back(computed);
        scheduler.OnComputed(*plan);
        scheduler.OnMeasured(*plan, measured(StageSeconds(*plan)));
      }
      EXPECT_EQ(computed, kPrompt);
      scheduler.Retire({id});
      return ends;
    };
    run(lie);
    const auto truth = [](double s) { return s; };
    for (int chunks = 0; chunks < 20;) chunks += static_cast<int>(run(truth).size());
    const plan::PipelineCost cost = CostOf(4, kCost);
    EXPECT_LE(plan::Predict(cost, 0, run(truth)).makespan_s,
              1.05 * plan::PlanChunks(cost, {.end = kPrompt, .max_tokens = 8192}).makespan_s);
  }
}

}  // namespace
}  // namespace longspan::engine
