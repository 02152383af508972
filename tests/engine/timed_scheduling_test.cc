// What the scheduler promises, with real ranks that take the time of a formula.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"
#include "tests/engine/timed_engine.h"

namespace longspan::testing {
namespace {

constexpr int64_t kChunk = 4096;
constexpr int64_t kLong = 200'000;
constexpr int64_t kShort = 64;
constexpr support::TimedCost kCost = {.per_call = 2e-4, .per_row = 3e-6, .per_pair = 4e-12};

std::unique_ptr<engine::Engine> Server(int stages) {
  return StartTimed({.stages = stages,
                     .layers = stages,
                     .cost = kCost,
                     .scheduler = {.chunk_tokens = kChunk},
                     .max_total_tokens = 1 << 19});
}

engine::Request Prompt(int64_t tokens, uint64_t seed) {
  return {.prompt = RandomIds(tokens, kTimedVocab, seed), .max_tokens = 1};
}

// Submits short prompts while the chunks of a long one are committed.
class Interrupted : public engine::OutputSink {
 public:
  Interrupted(engine::Engine& engine, int64_t short_prompts)
      : engine_(engine), every_(kLong / (short_prompts + 1)), left_(short_prompts) {
    long_ = engine.Submit(Prompt(kLong, 1), this).value();
    EXPECT_TRUE(engine.RunUntilIdle().ok());
  }

  void OnPrefill(plan::SequenceId id, int64_t done, int64_t) override {
    if (id != long_ || left_ == 0 || done < every_ * next_) return;
    EXPECT_TRUE(engine_.Submit(Prompt(kShort, 100 + next_), this).ok());
    ++next_;
    --left_;
  }
  void OnFinish(plan::SequenceId id, engine::FinishReason,
                const engine::FinishInfo& info) override {
    (id == long_ ? long_s : short_s).push_back(info.first_token_s);
  }

  std::vector<double> long_s;
  std::vector<double> short_s;

 private:
  engine::Engine& engine_;
  plan::SequenceId long_;
  int64_t every_;
  int64_t left_;
  int64_t next_ = 1;
};

class TimedSchedulingTest : public ::testing::TestWithParam<int> {};

// At best of three attempts: what else a machine does can only add to these times.
TEST_P(TimedSchedulingTest, ShortPromptsOvertakeALongOneAndCostItLittle) {
  const int stages = GetParam();
  const double alone = Interrupted(*Server(stages), 0).long_s[0];
  const double chunk = kCost.Layer(kLong, kChunk);
  const double idle = stages * kCost.Layer(0, kShort);
  double slowest = 0;
  double delayed = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Interrupted server(*Server(stages), 20);
    ASSERT_EQ(server.short_s.size(), 20u);
    slowest = *std::max_element(server.short_s.begin(), server.short_s.end());
    delayed = server.long_s[0];
    std::printf(
        "%d stages: first token of a short prompt after at most %.2f chunk times (idle server: "
        "%.2f); 20 of them cost the long one %.1f%%\n",
        stages, slowest / chunk, idle / chunk, 100 * (delayed / alone - 1));
    if (slowest <= idle + (stages + 1) * chunk && delayed < 1.1 * alone) return;
  }
  EXPECT_LE(slowest, idle + (stages + 1) * chunk);
  EXPECT_LT(delayed, 1.1 * alone);
}

INSTANTIATE_TEST_SUITE_P(Stages, TimedSchedulingTest, ::testing::Values(2, 4, 8));

constexpr double kRow = 1e-3;  // on a stage, all loops together

// Rows per second of 64 decodes on four stages.
double DecodeRate(int loops) {
  constexpr int64_t kSequences = 64;
  constexpr int64_t kTokens = 40;
  const auto engine = StartTimed({.stages = 4,
                                  .virtual_stages = loops,
                                  .layers = 4 * loops,
                                  .cost = {.per_row = kRow / loops},
                                  .max_context = 1024,
                                  .max_total_tokens = 1 << 15});
  std::vector<engine::Request> requests;
  for (int64_t i = 0; i < kSequences; ++i)
    requests.push_back({.prompt = {1}, .max_tokens = kTokens, .ignore_end_tokens = true});
  // Between the ends of the first and the last step, when all stages are at work.
  int64_t first = 0;
  int64_t last = 0;
  int64_t rows = 0;
  engine->set_step_observer([&](const engine::StepRecord& step) {
    if (step.slices[0].prefill) return;
    last = step.stages[3].end;
    if (first == 0) {
      first = last;
      return;
    }
    rows += static_cast<int64_t>(step.slices.size());
  });
  Generate(*engine, requests);
  return static_cast<double>(rows) / (1e-9 * static_cast<double>(last - first));
}

class TimedDecodeTest : public ::testing::TestWithParam<int> {};

TEST_P(TimedDecodeTest, FourGroupsFillFourStages) {
  // All in one group pass four stages for every token.
  const double one_group = 64.0 / (4 * 64 * kRow);
  // A busy machine wakes sleepers late: the best of three runs counts.
  double best = 0;
  for (int run = 0; run < 3 && best < 3.6; ++run)
    best = std::max(best, DecodeRate(GetParam()) / one_group);
  std::printf("64 sequences on 4 stages, %d loops: %.2f times the rate of one group\n", GetParam(),
              best);
  EXPECT_GE(best, 3.6);
}

INSTANTIATE_TEST_SUITE_P(Loops, TimedDecodeTest, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace longspan::testing
