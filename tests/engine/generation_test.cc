// Generation as a whole: the reference's greedy text, many sequences at once, stops, sampling, late
// arrivals.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/golden.h"
#include "tests/support/effort.h"

namespace longspan::testing {
namespace {

using engine::FinishReason;

TEST(GenerationTest, GreedyIdsAreTheReferences) {
  const auto engine =
      Start(ModelFolder("tiny-qwen3-moe"), {.backend = "cpu", .dtype = "f32", .stages = 2});
  for (const GoldenCase& golden : ReadGolden("tiny-qwen3-moe")) {
    if (golden.ids.size() > 400) continue;
    const auto output = Generate(
        *engine, {.prompt = golden.ids, .max_tokens = static_cast<int64_t>(golden.greedy.size())});
    EXPECT_EQ(output.ids, golden.greedy) << golden.name;
  }
  EXPECT_EQ(engine->pages().in_use(), 0);
}

// Sequences of different lengths, together and alone, in any layout: the same tokens on the
// reference.
TEST(GenerationTest, CompanyDoesNotChangeASequence) {
  const auto model = ModelFolder("rand-qwen3");
  std::vector<engine::Request> requests;
  for (int i = 0; i < 7; ++i)
    requests.push_back(
        {.prompt = RandomIds(1 + 37 * i, 320, i), .max_tokens = 5 + i, .ignore_end_tokens = true});
  std::vector<std::vector<int32_t>> alone;
  const auto one = Start(model, {});
  for (const auto& request : requests) alone.push_back(Generate(*one, request).ids);
  for (const Layout& layout : {Layout{.chunk_tokens = 16}, Layout{.stages = 3, .chunk_tokens = 50},
                               Layout{.stages = 2, .max_running = 2}}) {
    const auto engine = Start(model, layout);
    const auto together = Generate(*engine, requests);
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(together[i].ids, alone[i]) << i << ' ' << layout.ToString();
    EXPECT_EQ(engine->pages().in_use(), 0) << layout.ToString();
  }
}

TEST(GenerationTest, EndsAtStopTokensAndLimits) {
  const auto engine = Start(ModelFolder("rand-llama"), {.stages = 2});
  const auto prompt = RandomIds(20, 320, 5);
  const auto whole =
      Generate(*engine, {.prompt = prompt, .max_tokens = 12, .ignore_end_tokens = true});
  ASSERT_EQ(whole.ids.size(), 12u);
  EXPECT_EQ(whole.reason, FinishReason::kLength);
  // Stop at the first appearance of some later token.
  const int32_t stop = whole.ids[7];
  const auto first = std::find(whole.ids.begin(), whole.ids.end(), stop) - whole.ids.begin();
  const auto stopped = Generate(
      *engine,
      {.prompt = prompt, .max_tokens = 12, .stop_tokens = {stop}, .ignore_end_tokens = true});
  EXPECT_EQ(stopped.reason, FinishReason::kStop);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(whole.ids.begin(), whole.ids.begin() + first + 1));
  EXPECT_EQ(engine->pages().in_use(), 0);
}

TEST(GenerationTest, ASeedRepeatsItsChoicesInAnyLayoutAndCompany) {
  const auto model = ModelFolder("rand-llama31");
  const engine::Request request = {.prompt = RandomIds(70, 320, 8),
                                   .max_tokens = 20,
                                   .sampling = {.temperature = 1.0,
                                                .top_k = 50,
                                                .top_p = 0.95,
                                                .seed = 1234,
                                                .repetition_penalty = 1.2,
                                                .presence_penalty = 0.3},
                                   .ignore_end_tokens = true};
  const auto one = Start(model, {});
  const auto ids = Generate(*one, request).ids;
  engine::Request other = request;
  other.sampling.seed = 99;
  const auto engine = Start(model, {.stages = 3, .chunk_tokens = 9});
  const auto both = Generate(*engine, {other, request});
  EXPECT_EQ(both[1].ids, ids);
  EXPECT_NE(both[0].ids, ids);
}

TEST(GenerationTest, PenaltiesKeepTokensFromComingBack) {
  const auto engine = Start(ModelFolder("rand-qwen2"), {.stages = 2});
  const auto prompt = RandomIds(30, 320, 3);
  const auto output = Generate(*engine, {.prompt = prompt,
                                         .max_tokens = 40,
                                         .sampling = {.frequency_penalty = 100},
                                         .ignore_end_tokens = true});
  auto sorted = output.ids;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
}

// A small cache: sequences wait for pages and all get their turn.
TEST(GenerationTest, ALogitBiasForcesAndBansTokens) {
  const auto engine = Start(ModelFolder("rand-qwen3"), {.stages = 2});
  const auto prompt = RandomIds(20, 320, 5);
  const auto generate = [&](std::vector<std::pair<int32_t, float>> bias) {
    return Generate(*engine, {.prompt = prompt,
                              .max_tokens = 4,
                              .sampling = {.logit_bias = std::move(bias)},
                              .ignore_end_tokens = true})
        .ids;
  };
  const auto free = generate({});
  EXPECT_EQ(generate({{7, 1000.0F}}), std::vector<int32_t>(4, 7));
  EXPECT_NE(generate({{free[0], -1000.0F}})[0], free[0]);
  // Beside one that has none: each row has its own.
  const auto together = Generate(
      *engine,
      std::vector<engine::Request>{{.prompt = prompt,
                                    .max_tokens = 4,
                                    .sampling = {.logit_bias = {{7, 1000.0F}}},
                                    .ignore_end_tokens = true},
                                   {.prompt = prompt, .max_tokens = 4, .ignore_end_tokens = true}});
  EXPECT_EQ(together[0].ids, std::vector<int32_t>(4, 7));
  EXPECT_EQ(together[1].ids, free);
}

TEST(GenerationTest, MoreSequencesThanPagesAreServedInTurn) {
  const auto engine =
      Start(ModelFolder("rand-llama"), {.stages = 2, .chunk_tokens = 32, .max_total_tokens = 128});
  std::vector<engine::Request> requests;
  for (int i = 0; i < 9; ++i)
    requests.push_back(
        {.prompt = RandomIds(50 + i, 320, i), .max_tokens = 6, .ignore_end_tokens = true});
  for (const auto& output : Generate(*engine, requests)) EXPECT_EQ(output.ids.size(), 6u);
  EXPECT_EQ(engine->pages().in_use(), 0);
}

// Stage 0 hears of every token, also of those that no later plan refers to: more than a channel
// holds.
TEST(GenerationTest, ThousandsOfSingleTokensPassThroughTwoStages) {
  const auto engine = Start(ModelFolder("rand-llama"), {.stages = 2});
  const engine::Request request = {.prompt = {1}, .max_tokens = 1, .ignore_end_tokens = true};
  for (int i = 0; i < Effort(4200, 300); ++i) Generate(*engine, request);
  EXPECT_EQ(engine->pages().in_use(), 0);
}

// Aborts its own sequence while a token of it is being delivered.
class AbortingSink : public engine::OutputSink {
 public:
  bool OnToken(plan::SequenceId sequence, const engine::TokenOutput&) override {
    if (++tokens == 2) engine->Abort(sequence);
    return true;
  }
  void OnFinish(plan::SequenceId, FinishReason why, const engine::FinishInfo&) override {
    reason = why;
  }

  engine::Engine* engine = nullptr;
  int tokens = 0;
  FinishReason reason = FinishReason::kLength;
};

TEST(GenerationTest, ASinkMayAbortItsOwnSequence) {
  const auto engine = Start(ModelFolder("rand-llama"), {});
  AbortingSink sink;
  sink.engine = engine.get();
  ASSERT_TRUE(engine->Submit({.prompt = {1, 2}, .ignore_end_tokens = true}, &sink).ok());
  ASSERT_TRUE(engine->RunUntilIdle().ok());
  EXPECT_EQ(sink.tokens, 2);
  EXPECT_EQ(sink.reason, FinishReason::kAbort);
}

TEST(GenerationTest, LogprobsAreThoseOfScoring) {
  const auto engine = Start(ModelFolder("rand-qwen3"), {.stages = 2});
  const auto prompt = RandomIds(40, 320, 4);
  const auto output =
      Generate(*engine, {.prompt = prompt, .max_tokens = 6, .ignore_end_tokens = true});
  auto whole = prompt;
  whole.insert(whole.end(), output.ids.begin(), output.ids.end());
  std::vector<int64_t> positions;
  for (size_t i = 0; i < output.ids.size(); ++i)
    positions.push_back(static_cast<int64_t>(prompt.size() + i) - 1);
  positions.push_back(static_cast<int64_t>(whole.size()) - 1);
  const auto scores = Score(*engine, whole, positions);
  for (size_t i = 0; i < output.ids.size(); ++i)
    EXPECT_EQ(static_cast<float>(scores.next_logprobs[i]), output.logprobs[i]) << i;
}

// Two stages work on a prompt at once: the first one on the next chunk while the second one has the
// last, also beside a sequence that decodes.
struct Overlap {
  int chunks = 0;  // that follow each other
  int overlapping = 0;
  int waiting = 0;  // for more than a millisecond, as if for a sampled token
};

Overlap MeasureOverlap() {
  const auto engine = Start(ModelFolder("tiny-qwen3-moe"),
                            {.backend = "cpu", .dtype = "f32", .stages = 2, .chunk_tokens = 128});
  std::vector<engine::StepRecord> steps;
  engine->set_step_observer([&](const engine::StepRecord& step) { steps.push_back(step); });
  Generate(*engine,
           {{.prompt = RandomIds(10, 1024, 1), .max_tokens = 30, .ignore_end_tokens = true},
            {.prompt = RandomIds(2000, 1024, 2), .max_tokens = 1}});
  Overlap overlap;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto is_prefill = [](const engine::StepRecord& step) {
      return std::any_of(step.slices.begin(), step.slices.end(),
                         [](const auto& slice) { return slice.prefill; });
    };
    if (!is_prefill(steps[i]) || !is_prefill(steps[i + 1])) continue;
    ++overlap.chunks;
    overlap.overlapping += steps[i + 1].stages[0].start < steps[i].stages[1].end ? 1 : 0;
    overlap.waiting += steps[i].stages[0].wait >= 1'000'000 ? 1 : 0;
  }
  return overlap;
}

// On a busy machine a thread may be kept from its core: one run of several must show it, and where
// chunks wait for each other none does.
TEST(GenerationTest, ChunksOverlapAndNeverWaitForTheLastStage) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer slows down what lies between the chunks most";
  Overlap overlap;
  for (int run = 0; run < 8; ++run) {
    overlap = MeasureOverlap();
    ASSERT_GE(overlap.chunks, 10);
    if (overlap.overlapping == overlap.chunks && overlap.waiting == 0) return;
  }
  ADD_FAILURE() << overlap.overlapping << " of " << overlap.chunks << " chunks overlap, "
                << overlap.waiting << " wait";
}

}  // namespace
}  // namespace longspan::testing
