#include "engine/scheduler.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kPageSize = 4;
constexpr RequestLimits kLimits = {
    .vocab_size = 1000, .context_length = 64, .capacity_tokens = 64, .page_size = kPageSize};

// A prompt of `tokens` ids: 100 id, 100 id + 1, ...
std::unique_ptr<Sequence> MakeSequence(int64_t id, int64_t tokens, int64_t max_tokens) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = {id};
  for (int64_t i = 0; i < tokens; ++i)
    sequence->request.prompt.push_back(static_cast<int32_t>((100 * id + i) % 1000));
  sequence->request.max_tokens = max_tokens;
  return sequence;
}

void Add(Scheduler& scheduler, int64_t id, int64_t tokens, int64_t max_tokens) {
  ASSERT_TRUE(scheduler.Enqueue(MakeSequence(id, tokens, max_tokens), kLimits).ok());
}

// The next plan's text, or "nothing". The sampling parameters, which are not the scheduler's, are
// left out.
std::string NextText(Scheduler& scheduler) {
  const auto plan = scheduler.Next();
  if (!plan) return "nothing";
  std::string text = plan::ToText(*plan);
  for (size_t begin; (begin = text.find(" temperature")) != std::string::npos;)
    text.erase(begin, text.find('\n', begin) - begin);
  return text;
}

// What the engine does when a sampled token comes back.
void Commit(Scheduler& scheduler, int64_t id, int32_t token) {
  Sequence* sequence = scheduler.Find({id});
  ASSERT_NE(sequence, nullptr);
  ASSERT_FALSE(sequence->pending.empty());
  sequence->pending.pop_front();
  sequence->output.push_back(token);
}

TEST(SchedulerTest, APromptIsCutIntoChunksThatWaitForNothing) {
  Scheduler scheduler({.chunk_tokens = 4}, 16, kPageSize);
  Add(scheduler, 1, 10, 3);
  EXPECT_EQ(NextText(scheduler),
            "plan 1 epoch 0\n"
            "start 1\n"
            "slice 1 [0, 4) pages=[0] tokens=[100 101 102 103]\n");
  EXPECT_EQ(NextText(scheduler),
            "plan 2 epoch 0\n"
            "slice 1 [4, 8) pages=[1] tokens=[104 105 106 107]\n");
  EXPECT_EQ(NextText(scheduler),
            "plan 3 epoch 0\n"
            "slice 1 [8, 10) pages=[2] tokens=[108 109]\n"
            "logits slice=0 position=9 sample\n");
  // The first output token is not known yet, but where it will come from is.
  EXPECT_EQ(NextText(scheduler),
            "plan 4 epoch 0\n"
            "slice 1 [10, 11) pages=[] tokens=[plan3.0]\n"
            "logits slice=0 position=10 sample\n");
  EXPECT_EQ(NextText(scheduler), "nothing") << "two samples are in flight";
  Commit(scheduler, 1, 7);
  EXPECT_EQ(NextText(scheduler),
            "plan 5 epoch 0\n"
            "slice 1 [11, 12) pages=[] tokens=[plan4.0]\n"
            "logits slice=0 position=11 sample\n");
  Commit(scheduler, 1, 8);
  EXPECT_EQ(NextText(scheduler), "nothing") << "three tokens were asked for";
  Commit(scheduler, 1, 9);
  scheduler.Retire({1});
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(scheduler.pages().in_use(), 0);
}

TEST(SchedulerTest, PromptsShareAStepAndDecodingGoesFirst) {
  Scheduler scheduler({.chunk_tokens = 6}, 16, kPageSize);
  Add(scheduler, 1, 2, 3);
  Add(scheduler, 2, 7, 1);
  EXPECT_EQ(NextText(scheduler),
            "plan 1 epoch 0\n"
            "start 1\n"
            "start 2\n"
            "slice 1 [0, 2) pages=[0] tokens=[100 101]\n"
            "slice 2 [0, 4) pages=[1] tokens=[200 201 202 203]\n"
            "logits slice=0 position=1 sample\n");
  // A chunk is not to wait for the token of sequence 1.
  EXPECT_EQ(NextText(scheduler),
            "plan 2 epoch 0\n"
            "slice 2 [4, 6) pages=[2] tokens=[204 205]\n");
  Commit(scheduler, 1, 7);
  EXPECT_EQ(NextText(scheduler),
            "plan 3 epoch 0\n"
            "slice 1 [2, 3) pages=[] tokens=[7]\n"
            "slice 2 [6, 7) pages=[] tokens=[206]\n"
            "logits slice=0 position=2 sample\n"
            "logits slice=1 position=6 sample\n");
  // An abort: the next plan tells the ranks, and may use the pages again.
  scheduler.Retire({2});
  Add(scheduler, 3, 5, 1);
  EXPECT_EQ(NextText(scheduler),
            "plan 4 epoch 0\n"
            "release 2\n"
            "start 3\n"
            "slice 3 [0, 5) pages=[2 1] tokens=[300 301 302 303 304]\n"
            "logits slice=0 position=4 sample\n");
}

TEST(SchedulerTest, AnsweredTokensAreLiterals) {
  Scheduler scheduler({.chunk_tokens = 8}, 16, kPageSize);
  Add(scheduler, 1, 3, 2);
  NextText(scheduler);
  Commit(scheduler, 1, 42);
  EXPECT_EQ(NextText(scheduler),
            "plan 2 epoch 0\n"
            "slice 1 [3, 4) pages=[] tokens=[42]\n"
            "logits slice=0 position=3 sample\n");
}

TEST(SchedulerTest, APromptStartsWhenAllItsPagesAreThere) {
  Scheduler scheduler({.chunk_tokens = 8}, 4, kPageSize);
  Add(scheduler, 1, 6, 4);  // 9 positions: 3 pages
  Add(scheduler, 2, 6, 1);  // 2 pages
  Add(scheduler, 3, 1, 1);  // would fit, but waits for its turn
  EXPECT_THAT(NextText(scheduler), ::testing::Not(HasSubstr("start 2")));
  EXPECT_EQ(scheduler.pages().pool().free_pages(), 1);
  scheduler.Retire({1});
  const std::string text = NextText(scheduler);
  EXPECT_THAT(text, HasSubstr("release 1\nstart 3\nstart 2\n"))
      << "the shorter one's rows come first";
}

TEST(SchedulerTest, AQueuedSequenceLeavesWithoutATrace) {
  Scheduler scheduler({.max_running = 1, .max_queued = 2}, 16, kPageSize);
  Add(scheduler, 1, 4, 1);
  NextText(scheduler);
  Add(scheduler, 2, 4, 1);
  Add(scheduler, 3, 4, 1);
  EXPECT_THAT(scheduler.Enqueue(MakeSequence(4, 4, 1), kLimits).message(),
              HasSubstr("2 requests are waiting"));
  EXPECT_NE(scheduler.Retire({2}), nullptr);
  EXPECT_EQ(scheduler.Retire({2}), nullptr);
  EXPECT_EQ(scheduler.Find({2}), nullptr);
  scheduler.Retire({1});
  EXPECT_THAT(NextText(scheduler), HasSubstr("release 1\nstart 3\n"));
}

TEST(SchedulerTest, ScoredRowsAreListedInTheirChunks) {
  Scheduler scheduler({.chunk_tokens = 4}, 16, kPageSize);
  auto sequence = MakeSequence(1, 6, 0);
  sequence->request.score_positions = {0, 3, 5};
  sequence->request.return_hidden = true;
  ASSERT_TRUE(scheduler.Enqueue(std::move(sequence), kLimits).ok());
  EXPECT_THAT(NextText(scheduler), HasSubstr("logits slice=0 position=0 score=101\n"
                                             "logits slice=0 position=3 score=104\n"));
  // The last position has no next token; nothing is sampled.
  EXPECT_THAT(NextText(scheduler), ::testing::EndsWith("logits slice=0 position=5 hidden\n"));
  EXPECT_EQ(NextText(scheduler), "nothing");
}

}  // namespace
}  // namespace longspan::engine
