// What happens when pages run out: who waits, who is preempted, who may start.
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduler.h"
#include "engine/virtual_stages.h"

namespace longspan::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kPageSize = 4;

class ShortageTest : public ::testing::Test {
 protected:
  Sequence& Add(int64_t id, int64_t tokens, int64_t max_tokens, bool penalties = false) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = {id};
    sequence->request.prompt.resize(static_cast<size_t>(tokens));
    std::iota(sequence->request.prompt.begin(), sequence->request.prompt.end(),
              static_cast<int32_t>(1000 * id));
    sequence->request.max_tokens = max_tokens;
    if (penalties) sequence->request.sampling.repetition_penalty = 1.5;
    EXPECT_TRUE(
        scheduler_.Enqueue(std::move(sequence), {.context_length = 64, .page_size = kPageSize})
            .ok());
    return *scheduler_.Find({id});
  }

  // Makes a plan, if there is one, and commits it. The tokens of a sequence are 1, 2, 3, ...
  plan::StepPlan Step() {
    plan::StepPlan plan = scheduler_.Next().value();
    Commit(plan);
    return plan;
  }

  void Commit(const plan::StepPlan& plan) {
    scheduler_.OnComputed(plan);
    for (const plan::LogitsRow& row : plan.logits_rows) {
      Sequence* sequence = scheduler_.Find(plan.slices[row.slice].sequence);
      sequence->pending.pop_front();
      sequence->output.push_back(static_cast<int32_t>(sequence->output.size()) + 1);
      if (static_cast<int64_t>(sequence->output.size()) == sequence->output_limit)
        scheduler_.Retire(sequence->id);
    }
  }

  static std::vector<int64_t> Ids(const plan::StepPlan& plan) {
    std::vector<int64_t> ids;
    for (const plan::Slice& slice : plan.slices) ids.push_back(slice.sequence.value);
    return ids;
  }

  Scheduler scheduler_{{.chunk_tokens = 32}, 6, kPageSize};
};

TEST_F(ShortageTest, OutputsTakePagesAsTheyGrow) {
  const Sequence& sequence = Add(1, 6, 12);
  Step();
  EXPECT_EQ(sequence.pages.size(), 3u) << "two for the prompt, one to begin with";
  while (sequence.output.size() < 6) Step();
  EXPECT_EQ(sequence.pages.size(), 3u);
  Step();
  Step();
  EXPECT_EQ(sequence.pages.size(), 4u);
}

TEST_F(ShortageTest, TheYoungestWaitsAndThenTheCheapestIsComputedAgain) {
  const Sequence& first = Add(1, 8, 12);
  const Sequence& second = Add(2, 4, 12, true);
  Step();
  EXPECT_EQ(first.pages.size(), 3u);
  EXPECT_EQ(second.pages.size(), 2u);
  // Each fills its page; the older one gets the last.
  while (first.scheduled < 12) EXPECT_THAT(Ids(Step()), ElementsAre(1, 2));
  EXPECT_EQ(second.scheduled, 8);
  EXPECT_THAT(Ids(Step()), ElementsAre(1));
  EXPECT_EQ(scheduler_.preemptions(), 0) << "the other one may end";
  while (first.scheduled < 16) EXPECT_THAT(Ids(Step()), ElementsAre(1));
  // Now neither can go on.
  EXPECT_EQ(second.output.size(), 5u);
  const plan::StepPlan plan = Step();
  EXPECT_EQ(scheduler_.preemptions(), 1);
  EXPECT_THAT(Ids(plan), ElementsAre(1));
  EXPECT_THAT(plan.released, ElementsAre(plan::SequenceId{2}));
  EXPECT_THAT(second.pages, IsEmpty());
  while (scheduler_.Find({1}) != nullptr) Step();
  // It goes on where it was: the page of its prompt is cached, the rest is computed again.
  const plan::StepPlan resumed = Step();
  ASSERT_EQ(resumed.started.size(), 1u);
  EXPECT_THAT(resumed.started[0].prompt, ElementsAre(2000, 2001, 2002, 2003));
  EXPECT_THAT(resumed.started[0].output, ElementsAre(1, 2, 3, 4, 5));
  ASSERT_EQ(resumed.slices.size(), 1u);
  const plan::Slice& slice = resumed.slices[0];
  EXPECT_EQ(slice.begin % kPageSize, 0);
  EXPECT_EQ(slice.end(), 9);
  EXPECT_EQ(slice.tokens.back(), plan::TokenSource::Literal(5));
  ASSERT_EQ(resumed.logits_rows.size(), 1u);
  EXPECT_EQ(resumed.logits_rows[0].position, 8);
  EXPECT_EQ(second.cached_tokens, 0) << "of its first start";
  while (!scheduler_.idle()) Step();
  EXPECT_EQ(scheduler_.pages().in_use(), 0);
}

TEST_F(ShortageTest, APreemptedSequenceCanBeAborted) {
  Add(1, 8, 12);
  Add(2, 4, 12);
  while (scheduler_.preemptions() == 0) Step();
  EXPECT_NE(scheduler_.Retire({2}), nullptr);
  EXPECT_EQ(scheduler_.Find({2}), nullptr);
  while (!scheduler_.idle()) EXPECT_THAT(Step().released, IsEmpty()) << "told already";
  EXPECT_EQ(scheduler_.pages().in_use(), 0);
}

TEST_F(ShortageTest, NobodyStartsWhileADecodeWaits) {
  const Sequence& first = Add(1, 8, 12);
  Add(2, 4, 12);
  while (first.scheduled < 13) Step();
  const Sequence& third = Add(3, 1, 1);
  Step();
  EXPECT_THAT(third.pages, IsEmpty());
}

TEST_F(ShortageTest, CachedPrefixesGoBeforeAnyoneWaits) {
  Add(1, 11, 1);
  Step();
  EXPECT_EQ(scheduler_.pages().tree().cached_pages(), 2);
  Add(2, 4, 21);
  while (!scheduler_.idle()) Step();
  EXPECT_EQ(scheduler_.preemptions(), 0);
  EXPECT_EQ(scheduler_.pages().in_use(), 0);
}

using testing::VirtualStages;

// 256 pages of 16: 32 are kept, a short sequence needs eight at most.
VirtualStages Server() {
  return VirtualStages({.scheduler = {.chunk_tokens = 64},
                        .stages = 1,
                        .pages = 256,
                        .page_size = 16,
                        .stage_seconds = [](const plan::StepPlan& plan) {
                          return 1e-3 * static_cast<double>(plan.rows());
                        }});
}

TEST(KeptPagesTest, AShortPromptPassesALongOneThatWaitsForPages) {
  VirtualStages server = Server();
  const int64_t first = server.Submit(0, 3000, 1);
  const int64_t second = server.Submit(0.1, 3000, 1);
  const int64_t short_one = server.Submit(0.2, 32, 4);
  server.Run();
  EXPECT_LT(server.outcome(short_one).finish, 0.9);
  EXPECT_GT(server.outcome(second).first_token, server.outcome(first).finish + 2.9);
}

TEST(KeptPagesTest, LongOnesLeaveThemFree) {
  VirtualStages server = Server();
  server.Submit(0, 2000, 1);
  // 1400 tokens would fit behind the first one, but not with 32 pages left.
  const int64_t second = server.Submit(0, 1700, 1);
  const int64_t short_one = server.Submit(0.01, 100, 1);
  server.Run(1.0);
  EXPECT_GE(server.outcome(short_one).finish, 0);
  EXPECT_EQ(server.scheduler().Ids().size(), 2u);
  server.Run();
  EXPECT_GE(server.outcome(second).first_token, 3.7);
}

TEST(KeptPagesTest, TheWholePoolIsThereForOneAlone) {
  VirtualStages server = Server();
  const int64_t id = server.Submit(0, 256 * 16, 1);
  server.Run();
  EXPECT_NEAR(server.outcome(id).first_token, 4.096, 1e-6);
}

// Short ones that keep coming do not keep out one that needs all pages.
TEST(KeptPagesTest, AFloodOfShortOnesLetsALongOneStart) {
  VirtualStages server = Server();
  double at = 0;
  for (int i = 0; i < 20; ++i) server.Submit(at += 0.1, 100, 20);
  const int64_t id = server.Submit(at, 4000, 1);
  for (int i = 0; i < 400; ++i) server.Submit(at += 0.1, 100, 20);
  server.Run();
  EXPECT_LT(server.outcome(id).first_token - server.outcome(id).submitted, 2 * 4.0 + 6);
}

// More and longer outputs than there are pages for: all end, and little is computed twice.
TEST(KeptPagesTest, OutputsThatOutgrowThePoolAllEnd) {
  VirtualStages server = Server();
  int64_t tokens = 0;
  for (int64_t i = 0; i < 100; ++i) {
    server.Submit(0, 20 + i % 50, 100 + 37 * i % 300);
    tokens += 20 + i % 50 + 100 + 37 * i % 300 - 1;
  }
  server.Run();
  int64_t rows = 0;
  for (const plan::StepPlan& plan : server.plans()) rows += plan.rows();
  for (int64_t id = 1; id <= 100; ++id)
    EXPECT_EQ(server.outcome(id).tokens, 100 + 37 * (id - 1) % 300);
  EXPECT_GT(server.scheduler().preemptions(), 0);
  EXPECT_GE(rows, tokens);
  EXPECT_LT(rows, 1.3 * tokens);
  EXPECT_EQ(server.scheduler().pages().in_use(), 0);
}

}  // namespace
}  // namespace longspan::engine
