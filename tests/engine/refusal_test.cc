// What the engine refuses, and that nothing is left behind.
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

TEST(RefusalTest, BadRequestsGetOneSentence) {
  const auto engine = Start(ModelFolder("rand-llama"), {.max_total_tokens = 256});
  engine::OutputSink sink;
  const auto refused = [&](engine::Request request) {
    return std::string(engine->Submit(std::move(request), &sink).status().message());
  };
  EXPECT_THAT(refused({.prompt = {}}), HasSubstr("empty"));
  EXPECT_THAT(refused({.prompt = {320}}), HasSubstr("token id 320"));
  EXPECT_THAT(refused({.prompt = {-1}}), HasSubstr("token id -1"));
  EXPECT_THAT(refused({.prompt = RandomIds(5000, 320, 1)}), HasSubstr("5000 tokens"));
  EXPECT_THAT(refused({.prompt = RandomIds(300, 320, 1), .max_tokens = 1}),
              HasSubstr("at most 256 tokens"));
  EXPECT_THAT(refused({.prompt = {1}, .max_tokens = -1}), HasSubstr("max-tokens"));
  EXPECT_THAT(refused({.prompt = {1}, .sampling = {.top_p = 2}}), HasSubstr("top-p"));
  EXPECT_THAT(refused({.prompt = {1, 2}, .max_tokens = 0, .score_positions = {2}}),
              HasSubstr("position 2"));
  EXPECT_THAT(refused({.prompt = {1, 2}, .max_tokens = 0, .score_positions = {1, 0}}),
              HasSubstr("ascending"));
  EXPECT_TRUE(engine->RunUntilIdle().ok());
  EXPECT_EQ(engine->pages().in_use(), 0);
}

// Ends its sequence, or all of the engine's, at a chosen token.
class AbortingSink : public engine::OutputSink {
 public:
  bool OnToken(plan::SequenceId sequence, const engine::TokenOutput&) override {
    if (++tokens == 3) engine->Abort(other);
    return tokens < 5 || sequence == other;
  }
  void OnFinish(plan::SequenceId sequence, engine::FinishReason reason,
                const engine::FinishInfo&) override {
    reasons[sequence.value] = reason;
  }

  engine::Engine* engine = nullptr;
  plan::SequenceId other;
  int tokens = 0;
  std::map<int64_t, engine::FinishReason> reasons;
};

TEST(RefusalTest, AnAbortInTheMiddleFreesItsPages) {
  const auto engine = Start(ModelFolder("rand-llama"), {.stages = 3, .chunk_tokens = 16});
  AbortingSink sink;
  sink.engine = engine.get();
  const auto first =
      engine->Submit({.prompt = RandomIds(10, 320, 1), .ignore_end_tokens = true}, &sink).value();
  sink.other = engine->Submit({.prompt = RandomIds(900, 320, 2), .max_tokens = 4}, &sink).value();
  ASSERT_TRUE(engine->RunUntilIdle().ok());
  EXPECT_EQ(sink.reasons[first.value], engine::FinishReason::kStop);
  EXPECT_EQ(sink.reasons[sink.other.value], engine::FinishReason::kAbort);
  EXPECT_EQ(engine->pages().in_use(), 0);
  // The engine goes on.
  EXPECT_EQ(Generate(*engine, {.prompt = {1, 2, 3}, .max_tokens = 4, .ignore_end_tokens = true})
                .ids.size(),
            4u);
}

}  // namespace
}  // namespace longspan::testing
