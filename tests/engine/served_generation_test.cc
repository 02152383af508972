// What a request of the server generates, on a real engine.
#include <gtest/gtest.h>

#include "server/generation.h"
#include "tests/engine/engine_harness.h"

namespace longspan::testing {
namespace {

using server::EngineLoop;
using server::Generation;
using server::GenerationEvent;
using server::TokenEvent;

class ServedGenerationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_ = Start(ModelFolder("rand-llama"), LayoutOf());
    ASSERT_NE(engine_, nullptr);
  }

  virtual Layout LayoutOf() const { return {.max_running = 1}; }

  std::shared_ptr<Generation> Make(int choices) {
    server::GenerationRequest request;
    request.prompts = {{1, 2, 3}, {4, 5}};
    request.choices = choices;
    request.common.max_tokens = 4;
    request.common.ignore_end_tokens = true;
    return Generation::Create({.loop = loop_}, std::move(request), [] {});
  }

  // All that was posted runs to its end.
  void Run() {
    loop_.End();
    const base::Status status = loop_.Run(*engine_);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(engine_->idle());
  }

  EngineLoop loop_;
  std::unique_ptr<engine::Engine> engine_;
};

// How each sequence ended; none must end twice.
std::vector<std::optional<engine::FinishReason>> Ends(Generation& generation) {
  std::vector<std::optional<engine::FinishReason>> ends(generation.sequences());
  bool accepted = false;
  for (const GenerationEvent& event : generation.Drain()) {
    accepted = accepted || std::holds_alternative<server::AcceptedEvent>(event);
    const auto* token = std::get_if<TokenEvent>(&event);
    if (token == nullptr || !token->finish) continue;
    EXPECT_TRUE(accepted) << "an end before the begin";
    EXPECT_FALSE(ends[token->sequence].has_value()) << "twice";
    ends[token->sequence] = token->finish->reason;
  }
  return ends;
}

TEST_F(ServedGenerationTest, EverySequenceEnds) {
  const auto generation = Make(3);
  generation->Start();
  Run();
  for (const auto& end : Ends(*generation)) EXPECT_EQ(end, engine::FinishReason::kLength);
}

// An abort may come before the engine has heard of the request.
TEST_F(ServedGenerationTest, AnAbortBeforeTheStartEndsAllOfIt) {
  const auto generation = Make(3);
  generation->Abort();
  generation->Start();
  Run();
  for (const auto& end : Ends(*generation)) EXPECT_EQ(end, engine::FinishReason::kAbort);
}

TEST_F(ServedGenerationTest, AnAbortAtOnceEndsAllOfIt) {
  const auto generation = Make(3);
  generation->Start();
  generation->Abort();
  Run();
  for (const auto& end : Ends(*generation)) EXPECT_EQ(end, engine::FinishReason::kAbort);
}

class SmallCacheTest : public ServedGenerationTest {
 protected:
  Layout LayoutOf() const override { return {.max_total_tokens = 64, .max_running = 1}; }
};

TEST_F(SmallCacheTest, EveryPromptHasTheRoomThatItLeaves) {
  server::GenerationRequest request;
  request.prompts = {std::vector<int32_t>(60, 7), {5}};
  request.common.max_tokens = 1'000'000;
  request.common.ignore_end_tokens = true;
  const auto generation = Generation::Create({.loop = loop_}, std::move(request), [] {});
  generation->Start();
  Run();
  std::vector<int64_t> tokens(2);
  for (const GenerationEvent& event : generation->Drain())
    if (const auto* token = std::get_if<TokenEvent>(&event); token != nullptr && token->finish)
      tokens[token->sequence] = token->finish->completion_tokens;
  // The last token of an output is not cached.
  EXPECT_EQ(tokens, (std::vector<int64_t>{5, 64}));
}

class FullQueueTest : public ServedGenerationTest {
 protected:
  Layout LayoutOf() const override { return {.max_running = 1, .max_queued = 2}; }
};

// What was accepted is not taken back because its other choices find the queue full.
TEST_F(FullQueueTest, OtherChoicesWaitForTheirPlace) {
  const auto generation = Make(8);
  generation->Start();
  Run();
  for (const auto& end : Ends(*generation)) EXPECT_EQ(end, engine::FinishReason::kLength);
}

TEST_F(FullQueueTest, WhatFindsItFullIsRefused) {
  const auto first = Make(1);
  const auto second = Make(1);
  first->Start();
  second->Start();
  Run();
  for (const auto& end : Ends(*first)) EXPECT_EQ(end, engine::FinishReason::kLength);
  const auto events = second->Drain();
  ASSERT_FALSE(events.empty());
  const auto* failed = std::get_if<server::FailedEvent>(&events[0]);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->status.code(), base::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace longspan::testing
