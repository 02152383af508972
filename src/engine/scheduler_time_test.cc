// What prompts and decodes wait for each other, in virtual time.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "engine/virtual_stages.h"
#include "tests/support/effort.h"

namespace longspan::engine {
namespace {

using longspan::testing::Effort;
using testing::VirtualStages;

constexpr double kRow = 1e-4;
constexpr double kPair = 1e-9;
constexpr double kStep = 1e-3;  // of any step

// Of all slices alike, decoding ones too.
plan::StepWork ChunkWork(const plan::StepPlan& plan) {
  plan::StepWork work;
  for (const plan::Slice& slice : plan.slices) work.AddChunk(slice.begin, slice.end(), 0);
  return work;
}

double StageSeconds(const plan::StepPlan& plan) {
  const plan::StepWork work = ChunkWork(plan);
  return kStep + kRow * work.tokens + kPair * work.pairs;
}

VirtualStages::Setup MakeSetup(int stages, int64_t pages = 8192) {
  return {.scheduler = {.stages = stages},
          .stages = stages,
          .pages = pages,
          .stage_seconds = StageSeconds};
}

constexpr int64_t kLong = 200'000;
constexpr int64_t kShort = 64;

double Alone(int stages, int64_t prompt) {
  VirtualStages alone(MakeSetup(stages));
  const int64_t id = alone.Submit(0, prompt, 1);
  alone.Run();
  return alone.outcome(id).first_token;
}

class ShortPromptTest : public ::testing::TestWithParam<int> {};

TEST_P(ShortPromptTest, WaitsForTheChunksInFlightAndOneMore) {
  const int stages = GetParam();
  const double alone = Alone(stages, kShort);
  const double long_alone = Alone(stages, kLong);
  std::mt19937 random(stages);
  for (int i = 0; i < Effort(40, 5); ++i) {
    VirtualStages server(MakeSetup(stages));
    server.Submit(0, kLong, 1);
    const double at = std::uniform_real_distribution<double>(0, long_alone)(random);
    const int64_t id = server.Submit(at, kShort, 1);
    server.Run();
    // Of the chunks that were made up to then.
    double chunk = 0;
    for (size_t plan = 0; plan < server.plans().size(); ++plan)
      if (server.plan_times()[plan] < at) chunk = std::max(chunk, server.plan_seconds()[plan]);
    // The next one is a little deeper.
    chunk *= 1.01;
    EXPECT_LE(server.outcome(id).first_token - at, alone + (stages + 1) * chunk) << "at " << at;
  }
}

TEST_P(ShortPromptTest, TwentyOfThemCostTheLongOneLittle) {
  const int stages = GetParam();
  const double alone = Alone(stages, kLong);
  std::mt19937 random(stages);
  std::vector<double> times;
  for (int i = 0; i < 20; ++i)
    times.push_back(std::uniform_real_distribution<double>(0, alone)(random));
  std::sort(times.begin(), times.end());
  VirtualStages server(MakeSetup(stages));
  const int64_t id = server.Submit(0, kLong, 1);
  for (const double at : times) server.Submit(at, kShort, 8);
  server.Run();
  EXPECT_LT(server.outcome(id).first_token, 1.1 * alone);
}

// Short prompts that come faster than they can be served: each overtakes for itself, together they
// would never let the long one on.
TEST_P(ShortPromptTest, AFloodOfThemDelaysALongOneByAFactorOfTwo) {
  const int stages = GetParam();
  const int64_t prompt = 50'000;
  const double alone = Alone(stages, prompt);
  auto setup = MakeSetup(stages, 1 << 16);
  setup.scheduler.max_running = 1 << 14;
  setup.scheduler.max_queued = 1 << 14;
  VirtualStages server(setup);
  const int64_t id = server.Submit(0, prompt, 1);
  double at = 0;
  for (int i = 0; i < 4000; ++i) server.Submit(at += 0.01, 200, 1);
  server.Run(3 * alone);
  // Its last plan, and those in flight then.
  const double chunk = kStep + 512 * kRow + kPair * (2 * prompt * 512);
  EXPECT_GE(server.outcome(id).first_token, 1.5 * alone) << "they do overtake it";
  EXPECT_LE(server.outcome(id).first_token, 2.2 * alone + (stages + 2) * chunk);
}

TEST_P(ShortPromptTest, EqualPromptsEndInTheOrderInWhichTheyCame) {
  VirtualStages server(MakeSetup(GetParam()));
  for (int i = 0; i < 4; ++i) server.Submit(1e-6 * i, 5000, 1);
  server.Run();
  for (int i = 1; i < 4; ++i)
    EXPECT_GT(server.outcome(i + 1).first_token, server.outcome(i).first_token);
  EXPECT_LT(server.outcome(1).first_token, 1.1 * Alone(GetParam(), 5000));
}

INSTANTIATE_TEST_SUITE_P(Stages, ShortPromptTest, ::testing::Values(2, 4, 8));

double DecodeSeconds(int groups, int64_t sequences) {
  auto setup = MakeSetup(4);
  setup.scheduler.stages = groups;
  setup.stage_seconds = [](const plan::StepPlan& plan) { return kRow * ChunkWork(plan).tokens; };
  VirtualStages server(setup);
  for (int64_t i = 0; i < sequences; ++i) server.Submit(0, 1, 200);
  server.Run();
  return server.now();
}

TEST(DecodeGroupsTimeTest, FourGroupsFillFourStages) {
  EXPECT_GE(DecodeSeconds(1, 64) / DecodeSeconds(4, 64), 3.6);
  EXPECT_GE(DecodeSeconds(1, 6) / DecodeSeconds(4, 6), 2.6) << "groups of 2, 2, 1 and 1";
  EXPECT_NEAR(DecodeSeconds(1, 1) / DecodeSeconds(4, 1), 1, 0.01);
}

// Sequences of different lengths come and go all the time.
TEST(DecodeGroupsTimeTest, StayBalanced) {
  double seconds[2];
  for (const int groups : {1, 4}) {
    auto setup = MakeSetup(4);
    setup.scheduler.stages = groups;
    setup.stage_seconds = [](const plan::StepPlan& plan) { return kRow * ChunkWork(plan).tokens; };
    VirtualStages server(setup);
    std::mt19937 random(3);
    for (int64_t i = 0; i < 300; ++i) server.Submit(0, 1, 50 + random() % 200);
    server.Run();
    seconds[groups / 4] = server.now();
  }
  EXPECT_GE(seconds[0] / seconds[1], 3.4);
}

TEST(DecodeStallTest, BoundsChunksWhileOthersDecode) {
  auto setup = MakeSetup(2);
  setup.scheduler.max_decode_stall_s = 0.02;
  VirtualStages server(setup);
  server.Submit(0, 3000, 400);
  const int64_t id = server.Submit(1, 100'000, 1);
  server.Run();
  int bounded = 0;
  for (size_t i = 0; i < server.plans().size(); ++i) {
    const plan::StepPlan& plan = server.plans()[i];
    if (server.plan_times()[i] < 1 || server.plan_times()[i] >= server.outcome(1).finish) continue;
    if (plan.slices.back().tokens.size() <= 16) continue;
    ++bounded;
    // A few steps teach the model what they are like.
    EXPECT_LE(server.plan_seconds()[i], bounded < 10 ? 0.023 : 0.0205) << i;
    EXPECT_GE(server.plan_seconds()[i], bounded < 10 ? 0.007 : 0.015) << i;
  }
  EXPECT_GT(bounded, 100);
  // Alone again, chunks are whole.
  EXPECT_GT(server.plan_seconds()[server.plans().size() - 2], 0.05);
  EXPECT_GT(server.outcome(id).finish, server.outcome(1).finish);
}

}  // namespace
}  // namespace longspan::engine
