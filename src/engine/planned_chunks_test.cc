// Planned chunks in the real scheduler, over stages that only count time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/virtual_stages.h"
#include "plan/chunk_planner.h"
#include "tests/support/effort.h"

namespace longspan::engine {
namespace {

using longspan::testing::Effort;
using testing::VirtualStages;

constexpr plan::ChunkCost kCost = {.per_step = 4e-3, .per_token = 5e-6, .per_pair = 4e-11};

constexpr int64_t kPageSize = 64;

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

// Every chunk begins where the one before ended, planned ones at a page, and all prompts are
// computed.
void ExpectValid(const VirtualStages& server, ChunkPolicy::Kind kind, int64_t chunk_tokens) {
  const bool at_pages = kind == ChunkPolicy::Kind::kPlanned && chunk_tokens >= kPageSize;
  std::map<int64_t, int64_t> computed;
  for (const plan::StepPlan& plan : server.plans()) {
    int64_t rows = 0;
    for (const plan::Slice& slice : plan.slices) {
      if (at_pages && slice.begin < server.prompt(slice.sequence.value)) {
        EXPECT_EQ(slice.begin % kPageSize, 0);
      }
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
  ExpectValid(server, setup.scheduler.chunk_policy.kind, setup.scheduler.chunk_tokens);
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
    EXPECT_LE(FirstToken(setup, kPrompt), 1.04 * best) << stages;
    setup.scheduler.chunk_policy.kind = ChunkPolicy::Kind::kFixed;
    EXPECT_GT(FirstToken(setup, kPrompt), 1.05 * best) << stages;
    setup.scheduler.chunk_policy.kind = ChunkPolicy::Kind::kQuadratic;
    EXPECT_GT(FirstToken(setup, kPrompt), 0.999 * best) << stages;
  }
}

struct Batch {
  int stages = 1;
  int prompts = 1;
  int64_t tokens = 0;  // of each
};

struct BatchTime {
  double seconds = 0;  // from when they come to the last one's first token
  int64_t plans = 0;
};

// All prompts at once, where the costs are known from some of all lengths.
BatchTime RunBatch(const Batch& batch, const ChunkPolicy& policy, int64_t chunk_tokens) {
  constexpr double kBegin = 100;
  auto setup = MakeSetup(batch.stages, policy.kind, chunk_tokens);
  setup.scheduler.chunk_policy = policy;
  VirtualStages server(setup);
  double at = 0;
  for (const int64_t tokens : {16'384, 65'536, 700, 131'072, 3000})
    if (policy.kind != ChunkPolicy::Kind::kFixed) server.Submit(at += 10, tokens, 1);
  for (int i = 0; i < batch.prompts; ++i) server.Submit(kBegin, batch.tokens, 1);
  server.Run();
  ExpectValid(server, policy.kind, chunk_tokens);
  const auto& times = server.plan_times();
  return {.seconds = server.now() - kBegin,
          .plans = std::count_if(times.begin(), times.end(), [](double s) { return s >= kBegin; })};
}

double BestFixed(const Batch& batch) {
  double best = std::numeric_limits<double>::infinity();
  for (const int64_t tokens : {512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384})
    best = std::min(best, RunBatch(batch, {.kind = ChunkPolicy::Kind::kFixed}, tokens).seconds);
  return best;
}

TEST(PlannedChunksTest, ABatchTakesNoLongerThanWithTheFixedSizeThatSuitsItBest) {
  for (const int prompts : {1, 12}) {
    const Batch batch = {.stages = 8, .prompts = prompts, .tokens = 32'768};
    EXPECT_LE(RunBatch(batch, {.kind = ChunkPolicy::Kind::kPlanned}, 16384).seconds,
              1.005 * BestFixed(batch))
        << prompts;
  }
}

TEST(PlannedChunksTest, ManyPromptsGetLongerChunksThanOne) {
  const ChunkPolicy planned = {.kind = ChunkPolicy::Kind::kPlanned};
  const int64_t alone = RunBatch({8, 1, 32'768}, planned, 16384).plans;
  EXPECT_LT(RunBatch({8, 12, 32'768}, planned, 16384).plans, 12 * alone / 2);
}

TEST(PlannedChunksTest, PromptsOfAllLengthsAreComputedOnce) {
  std::mt19937 random(7);
  for (const auto kind :
       {ChunkPolicy::Kind::kPlanned, ChunkPolicy::Kind::kQuadratic, ChunkPolicy::Kind::kFixed}) {
    for (const int64_t chunk_tokens : {7, 64, 500, 4096}) {
      VirtualStages server(MakeSetup(3, kind, chunk_tokens));
      double at = 0;
      for (int i = 0; i < Effort(40, 10); ++i)
        server.Submit(at += 0.01 * static_cast<double>(random() % 8),
                      1 + random() % (i % 5 == 0 ? 3000 : 300), 1 + random() % 9);
      server.Run();
      ExpectValid(server, kind, chunk_tokens);
    }
  }
}

// A step holds 512 rows: of the second prompt 412 would fit, which ends within a page.
TEST(PlannedChunksTest, PromptsThatShareAStepAreCutAtPages) {
  VirtualStages server(MakeSetup(1, ChunkPolicy::Kind::kPlanned, 512));
  server.Submit(0, 1024, 1);  // while its steps run, the others come
  server.Submit(1e-3, 100, 1);
  server.Submit(1e-3, 5000, 1);
  server.Run();
  ExpectValid(server, ChunkPolicy::Kind::kPlanned, 512);
  const auto shared = std::find_if(server.plans().begin(), server.plans().end(),
                                   [](const auto& plan) { return plan.slices.size() > 1; });
  ASSERT_NE(shared, server.plans().end());
  EXPECT_EQ(shared->slices[1].tokens.size(), 384U);
}

TEST(PlannedChunksTest, DecodesStallNoLongerThanTheyMay) {
  auto setup = MakeSetup(2, ChunkPolicy::Kind::kPlanned, 8192);
  setup.scheduler.max_decode_stall_s = 0.02;
  VirtualStages server(setup);
  server.Submit(0, 3000, 400);
  server.Submit(1, 100'000, 1);
  server.Run();
  ExpectValid(server, ChunkPolicy::Kind::kPlanned, 8192);
  int bounded = 0;
  for (size_t i = 0; i < server.plans().size(); ++i) {
    if (server.plan_times()[i] < 1 || server.plan_times()[i] >= server.outcome(1).finish) continue;
    // A few steps teach the model what they are like.
    EXPECT_LE(server.plan_seconds()[i], ++bounded < 40 ? 0.024 : 0.0208) << i;
  }
  EXPECT_GT(bounded, 30);
}

// A limit that binds little leaves the best plan, not the longest chunks that it allows.
TEST(PlannedChunksTest, UnderAStallLimitAPromptTakesAsLongAsItsBestPlan) {
  constexpr int64_t kPrompt = 131'072;
  for (const double stall : {0.03, 0.2}) {
    auto setup = MakeSetup(4, ChunkPolicy::Kind::kPlanned, 16384);
    setup.scheduler.max_decode_stall_s = stall;
    VirtualStages server(setup);
    server.Submit(0, 32'768, 100'000);  // teaches, and decodes all the time
    server.Submit(2, kPrompt, 1);
    server.Run(6);
    const double best =
        plan::PlanChunks(CostOf(4, kCost),
                         {.end = kPrompt, .max_tokens = 16384, .max_seconds = stall})
            .makespan_s;
    EXPECT_LE(server.outcome(2).first_token - 2, 1.05 * best) << stall;
    for (const plan::StepPlan& plan : server.plans())
      for (const plan::Slice& slice : plan.slices)
        if (slice.sequence.value == 2) {
          EXPECT_EQ(slice.begin % kPageSize, 0);
        }
  }
}

TEST(PlannedChunksTest, WhereAPageTakesTooLongChunksAreShorter) {
  constexpr double kStall = 0.0045;
  auto setup = MakeSetup(2, ChunkPolicy::Kind::kPlanned, 8192);
  setup.scheduler.max_decode_stall_s = kStall;
  VirtualStages server(setup);
  server.Submit(0, 640, 4000);
  server.Submit(5, 60'000, 1);
  server.Run();
  EXPECT_EQ(server.outcome(2).tokens, 1);
  bool within_page = false;
  int bounded = 0;
  for (size_t i = 0; i < server.plans().size(); ++i) {
    if (server.plan_times()[i] < 5 || server.plan_times()[i] >= server.outcome(1).finish) continue;
    // One step was measured before: the first ones teach the model what they are like.
    EXPECT_LE(server.plan_seconds()[i], (++bounded < 8 ? 1.15 : 1.01) * kStall) << i;
    for (const plan::Slice& slice : server.plans()[i].slices)
      within_page |= slice.sequence.value == 2 && slice.begin % kPageSize != 0;
  }
  EXPECT_TRUE(within_page);
}

// A short prompt overtakes: long ones get nothing of its step, and no plan is made for them.
TEST(PlannedChunksTest, PromptsThatGetNothingAreNotPlanned) {
  Scheduler scheduler(
      {.chunk_tokens = 8192, .chunk_policy = {.kind = ChunkPolicy::Kind::kPlanned}, .stages = 4},
      1 << 14, kPageSize);
  const auto submit = [&](int64_t id, size_t tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = {id};
    sequence->request.prompt.assign(tokens, static_cast<int32_t>(id));
    sequence->request.max_tokens = 0;
    ASSERT_TRUE(scheduler.Enqueue(std::move(sequence), {.context_length = 1 << 20}).ok());
  };
  submit(1, 65'536);
  ASSERT_TRUE(scheduler.Next().has_value());
  const std::vector<int64_t> planned = scheduler.Find({1})->planned.ends;
  EXPECT_FALSE(planned.empty());
  submit(2, 65'536);
  submit(3, 300);
  const auto plan = scheduler.Next(base::Clock::Duration(1'000'000));
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->slices.size(), 1U);
  EXPECT_EQ(plan->slices.front().sequence.value, 3);
  EXPECT_TRUE(scheduler.Find({2})->planned.ends.empty());
  EXPECT_EQ(scheduler.Find({1})->planned.ends, planned);
}

constexpr int64_t kLiedPrompt = 65'536;

// One prompt after the other, alone, each chunk reported as `measured` says.
class Reported {
 public:
  using Report = std::function<double(double)>;

  // The chunks of the next prompt.
  std::vector<int64_t> Run(const Report& measured) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = {++id_};
    sequence->request.prompt.resize(kLiedPrompt);
    for (int32_t& token : sequence->request.prompt) token = static_cast<int32_t>(random_() % 1000);
    sequence->request.max_tokens = 0;
    EXPECT_TRUE(scheduler_.Enqueue(std::move(sequence), {.context_length = 1 << 20}).ok());
    std::vector<int64_t> ends;
    int64_t computed = 0;
    while (computed < kLiedPrompt) {
      const auto plan = scheduler_.Next();
      if (!plan || plan->slices.size() != 1) break;
      const plan::Slice& slice = plan->slices.front();
      EXPECT_EQ(slice.begin, computed);
      computed = slice.end();
      if (computed != kLiedPrompt) {
        EXPECT_EQ(computed % kPageSize, 0);
      }
      EXPECT_LE(slice.tokens.size(), 8192U);
      ends.push_back(computed);
      scheduler_.OnComputed(*plan);
      scheduler_.OnMeasured(*plan, measured(StageSeconds(*plan)));
    }
    EXPECT_EQ(computed, kLiedPrompt);
    scheduler_.Retire({id_});
    return ends;
  }

  // How much longer than with the best plan the next prompt takes, as a share, by what is known
  // now: nothing is learnt from it.
  double Loss() {
    const plan::PipelineCost cost = CostOf(4, kCost);
    const auto nothing = [](double) { return std::nan(""); };
    const double best = plan::PlanChunks(cost, {.end = kLiedPrompt, .max_tokens = 8192}).makespan_s;
    return plan::Predict(cost, 0, Run(nothing)).makespan_s / best - 1;
  }

 private:
  Scheduler scheduler_{
      {.chunk_tokens = 8192, .chunk_policy = {.kind = ChunkPolicy::Kind::kPlanned}, .stages = 4},
      1 << 12,
      kPageSize};
  std::mt19937 random_{5};
  int64_t id_ = 0;
};

// Measurements that are wrong, in every way: whatever is planned is valid, and it is planned well
// again when 20 chunks were measured right again.
TEST(PlannedChunksTest, WrongMeasurementsMakeNoWrongPlans) {
  std::mt19937 random(7);
  const std::vector<Reported::Report> lies = {
      [](double) { return std::nan(""); }, [](double) { return 0.0; },
      [](double s) { return 10 * s; },     [](double s) { return s / 10; },
      [](double) { return -1.0; },         [&](double s) { return s * (random() % 100) / 10.0; }};
  for (size_t lie = 0; lie < lies.size(); ++lie) {
    for (const bool after_truth : {false, true}) {
      Reported reported;
      if (after_truth) reported.Run([](double s) { return s; });
      reported.Run(lies[lie]);
      int right = 0;
      while (right < 20) reported.Run([&](double s) { return right++ < 20 ? s : std::nan(""); });
      EXPECT_LE(reported.Loss(), 0.03) << lie << " " << after_truth;
    }
  }
}

TEST(PlannedChunksTest, OneWrongMeasurementInTenMakesNoWorsePlans) {
  for (const double factor : {10.0, 0.1}) {
    Reported reported;
    int count = 0;
    const auto mostly_right = [&](double s) { return ++count % 10 == 5 ? factor * s : s; };
    while (count < 20) reported.Run(mostly_right);
    for (int prompt = 0; prompt < 4; ++prompt) {
      EXPECT_LE(reported.Loss(), 0.03) << factor << " " << prompt;
      reported.Run(mostly_right);
    }
  }
}

}  // namespace
}  // namespace longspan::engine
