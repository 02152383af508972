// What the scheduler does with prefixes that are cached.
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduler.h"

namespace longspan::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kPageSize = 4;
constexpr int64_t kPages = 16;
constexpr RequestLimits kLimits = {
    .vocab_size = 1000, .context_length = 64, .capacity_tokens = 64, .page_size = kPageSize};

std::vector<int32_t> Tokens(int32_t first, int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<int32_t> operator+(std::vector<int32_t> tokens, const std::vector<int32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

class PrefixReuseTest : public ::testing::Test {
 protected:
  Sequence& Add(int64_t id, Request request) { return Add(scheduler_, id, std::move(request)); }

  static Sequence& Add(Scheduler& scheduler, int64_t id, Request request) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = {id};
    sequence->request = std::move(request);
    EXPECT_TRUE(scheduler.Enqueue(std::move(sequence), kLimits).ok());
    return *scheduler.Find({id});
  }

  // Makes the next plan and, as the engine does, commits it; every token sampled is `token`.
  plan::StepPlan Step(int32_t token = 7) {
    plan::StepPlan plan = scheduler_.Next().value();
    Commit(plan, token);
    return plan;
  }

  void Commit(const plan::StepPlan& plan, int32_t token = 7) {
    scheduler_.OnComputed(plan);
    for (const plan::LogitsRow& row : plan.logits_rows) {
      Sequence* sequence = scheduler_.Find(plan.slices[row.slice].sequence);
      if (!row.sample || sequence == nullptr) continue;
      sequence->pending.pop_front();
      sequence->output.push_back(token);
    }
  }

  // A sequence that comes, is computed as a whole, and goes.
  void Serve(int64_t id, const std::vector<int32_t>& prompt) {
    const Sequence& sequence = Add(id, {.prompt = prompt, .max_tokens = 1});
    while (sequence.output.empty()) Step();
    scheduler_.Retire({id});
  }

  // What a prompt would find now, asked of a copy.
  int64_t CachedTokens(const std::vector<int32_t>& prompt) {
    PageLedger pages = scheduler_.pages();
    Sequence sequence;
    sequence.request.prompt = prompt;
    EXPECT_TRUE(
        pages.Reserve(sequence, kv::PagesFor(static_cast<int64_t>(prompt.size()), kPageSize), 0));
    return sequence.cached_tokens;
  }

  Scheduler scheduler_{{.chunk_tokens = 6}, kPages, kPageSize};
};

TEST_F(PrefixReuseTest, AHitBeginsBehindThePrefixWithThePagesOfAll) {
  Serve(1, Tokens(100, 10));
  const Sequence& second = Add(2, {.prompt = Tokens(100, 9) + Tokens(200, 6), .max_tokens = 1});
  const auto plan = Step();
  EXPECT_EQ(second.cached_tokens, 8);
  ASSERT_EQ(plan.slices.size(), 1u);
  EXPECT_EQ(plan.slices[0].begin, 8);
  EXPECT_EQ(plan.slices[0].end(), 12) << "up to the next multiple of the chunk size";
  EXPECT_THAT(plan.slices[0].new_pages, ElementsAre(0, 1, second.pages[2]));
  EXPECT_EQ(plan.slices[0].tokens[0], plan::TokenSource::Literal(108));
  EXPECT_EQ(scheduler_.pages().pool().users(0), 2);
  EXPECT_EQ(Step().slices[0].begin, 12);
}

TEST_F(PrefixReuseTest, OneTokenIsLeftToCompute) {
  Serve(1, Tokens(100, 12));
  EXPECT_EQ(CachedTokens(Tokens(100, 12)), 8);
  EXPECT_EQ(CachedTokens(Tokens(100, 13)), 12);
  EXPECT_EQ(CachedTokens(Tokens(100, 4)), 0);
}

TEST_F(PrefixReuseTest, OnlyWhatIsComputedIsCached) {
  Add(1, {.prompt = Tokens(100, 12), .max_tokens = 1});
  const auto first = scheduler_.Next().value();   // [0, 6)
  const auto second = scheduler_.Next().value();  // [6, 12)
  EXPECT_EQ(CachedTokens(Tokens(100, 20)), 0);
  Commit(first);
  EXPECT_EQ(CachedTokens(Tokens(100, 20)), 4) << "the second page is not full";
  scheduler_.Retire({1});
  Commit(second);
  EXPECT_EQ(CachedTokens(Tokens(100, 20)), 4) << "what was in flight at an abort is not cached";
}

TEST_F(PrefixReuseTest, ASecondTurnFindsTheFirstOnesOutput) {
  Add(1, {.prompt = Tokens(100, 6), .max_tokens = 7});
  for (int32_t token = 900; token < 907; ++token) Step(token);
  scheduler_.Retire({1});
  const auto turn = Tokens(100, 6) + Tokens(900, 7);
  // The last token of an output is never computed.
  EXPECT_EQ(CachedTokens(turn + Tokens(300, 10)), 12);
  EXPECT_EQ(CachedTokens(Tokens(100, 6) + Tokens(901, 10)), 4);
}

TEST_F(PrefixReuseTest, ATokenThatIsOnlyScheduledIsNotPublished) {
  Add(1, {.prompt = Tokens(100, 6), .max_tokens = 9});
  Step(900);
  Step(901);
  const auto last = scheduler_.Next().value();   // position 7, whose token is known
  const auto ahead = scheduler_.Next().value();  // position 8
  EXPECT_EQ(CachedTokens(Tokens(100, 6) + Tokens(900, 10)), 4);
  Commit(last, 902);
  EXPECT_EQ(CachedTokens(Tokens(100, 6) + Tokens(900, 10)), 8);
  scheduler_.Retire({1});
  Commit(ahead);
  EXPECT_EQ(scheduler_.pages().in_use(), 0);
}

TEST_F(PrefixReuseTest, RowsThatAreWantedAreComputed) {
  Serve(1, Tokens(100, 16));
  const Sequence& scored =
      Add(2, {.prompt = Tokens(100, 16), .max_tokens = 0, .score_positions = {9, 15}});
  EXPECT_EQ(Step().slices[0].begin, 8);
  EXPECT_EQ(scored.cached_tokens, 8);
  scheduler_.Retire({2});
  Add(3, {.prompt = Tokens(100, 16), .max_tokens = 0, .score_positions = {0}});
  EXPECT_EQ(Step().slices[0].begin, 0);
}

TEST_F(PrefixReuseTest, ASyntheticPrefixIsNeitherFoundNorKept) {
  Serve(1, Tokens(100, 16));
  const Sequence& bench =
      Add(2, {.prompt = Tokens(100, 16), .max_tokens = 0, .synthetic_prefix = 5});
  EXPECT_EQ(Step().slices[0].begin, 5);
  EXPECT_EQ(bench.cached_tokens, 0);
  scheduler_.Retire({2});
  Add(3, {.prompt = Tokens(500, 16), .max_tokens = 0, .synthetic_prefix = 12});
  Step();
  scheduler_.Retire({3});
  EXPECT_EQ(CachedTokens(Tokens(500, 16)), 0);
}

TEST_F(PrefixReuseTest, TwoThatComputeTheSameAtOnceLeaveItOnce) {
  Add(1, {.prompt = Tokens(100, 9), .max_tokens = 0});
  Add(2, {.prompt = Tokens(100, 9), .max_tokens = 0});
  for (int i = 0; i < 4; ++i) Step();
  scheduler_.Retire({1});
  scheduler_.Retire({2});
  EXPECT_EQ(scheduler_.pages().tree().cached_pages(), 2);
  EXPECT_EQ(scheduler_.pages().pool().free_pages(), kPages - 2);
}

TEST_F(PrefixReuseTest, APromptThatNeedsThePagesEvictsTheOldest) {
  Serve(1, Tokens(100, 20));
  Serve(2, Tokens(200, 20));
  Serve(4, Tokens(100, 20));
  EXPECT_EQ(scheduler_.pages().tree().cached_pages(), 10);
  // Ten of 16 pages: four of the cached ones have to go.
  Serve(3, Tokens(300, 40));
  EXPECT_EQ(CachedTokens(Tokens(200, 21)), 4);
  EXPECT_EQ(CachedTokens(Tokens(100, 21)), 20);
}

TEST_F(PrefixReuseTest, PagesOfARunningSequenceAreNotEvicted) {
  Serve(1, Tokens(100, 20));
  const Sequence& running = Add(2, {.prompt = Tokens(100, 21), .max_tokens = 20});
  Step();
  EXPECT_EQ(running.cached_tokens, 20);
  const Sequence& waiting = Add(3, {.prompt = Tokens(300, 40), .max_tokens = 0});
  while (running.output.size() < 20) Step();
  EXPECT_THAT(waiting.pages, IsEmpty()) << "ten pages are used, ten more wanted, 16 are there";
  EXPECT_EQ(waiting.scheduled, 0);
  scheduler_.Retire({2});
  Step();
  EXPECT_EQ(waiting.pages.size(), 10u);
}

TEST_F(PrefixReuseTest, AWaitingSequenceHoldsNothingAndIsServedWhenOthersCacheItsPrefix) {
  const Sequence& first = Add(1, {.prompt = Tokens(100, 40), .max_tokens = 5});  // 11 pages
  Step();
  const Sequence& second = Add(2, {.prompt = Tokens(100, 40), .max_tokens = 1});  // 10 pages
  Step();
  EXPECT_THAT(second.pages, IsEmpty());
  EXPECT_EQ(second.prefix.pages, 0);
  EXPECT_EQ(scheduler_.pages().available(), 5);
  // When the first one has computed five pages of it, the other five are there.
  while (second.pages.empty()) {
    ASSERT_LT(first.computed, 30);
    Step();
  }
  EXPECT_GE(second.cached_tokens, 20);
  EXPECT_EQ(second.pages.size(), 10u);
}

TEST_F(PrefixReuseTest, CanBeSwitchedOff) {
  Scheduler scheduler({.chunk_tokens = 32, .reuse_prefixes = false}, kPages, kPageSize);
  for (int64_t id = 1; id < 3; ++id) {
    const Sequence& sequence = Add(scheduler, id, {.prompt = Tokens(100, 20), .max_tokens = 0});
    const auto plan = scheduler.Next().value();
    scheduler.OnComputed(plan);
    EXPECT_EQ(plan.slices[0].begin, 0);
    EXPECT_EQ(sequence.cached_tokens, 0);
    scheduler.Retire({id});
    EXPECT_EQ(scheduler.pages().pool().free_pages(), kPages);
  }
}

}  // namespace
}  // namespace longspan::engine
