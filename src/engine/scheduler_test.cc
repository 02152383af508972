#include "engine/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>

#include <fmt/format.h>
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
  EXPECT_EQ(scheduler.pool().free_pages(), 16);
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
  EXPECT_EQ(scheduler.pool().free_pages(), 1);
  scheduler.Retire({1});
  const std::string text = NextText(scheduler);
  EXPECT_THAT(text, HasSubstr("release 1\nstart 2\nstart 3\n"));
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

// Ranks that answer late, arrivals and aborts at random: what must always hold.
class RandomLoad {
 public:
  RandomLoad(uint64_t seed, int stages)
      : random_(seed),
        stages_(stages),
        scheduler_({.chunk_tokens = 1 + static_cast<int64_t>(random_() % 12),
                    .max_running = 1 + static_cast<int64_t>(random_() % 4)},
                   kPages, kPageSize) {}

  void Run() {
    for (int step = 0; step < 300 || !scheduler_.idle() || !in_flight_.empty(); ++step) {
      ASSERT_LT(step, 20000) << "does not end";
      if (step < 300 && random_() % 4 == 0) Arrive();
      if (step < 300 && random_() % 16 == 0) AbortOne();
      bool planned = false;
      if (static_cast<int>(in_flight_.size()) <= stages_) planned = Plan();
      if (!in_flight_.empty() && (!planned || random_() % 2 == 0)) Answer();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(scheduler_.pool().free_pages(), kPages);
    EXPECT_GT(finished_, 10);
  }

 private:
  static constexpr int64_t kPages = 24;

  // What the ranks know, and what the test has seen of a sequence.
  struct Known {
    int64_t computed = 0;  // positions [0, computed) have been planned, each once
    std::vector<kv::PageId> pages;
  };

  void Arrive() {
    const int64_t tokens = 1 + static_cast<int64_t>(random_() % 40);
    Add(scheduler_, ++last_id_, tokens, static_cast<int64_t>(random_() % 8));
  }

  void AbortOne() {
    const auto ids = scheduler_.Ids();
    if (!ids.empty()) Retire(ids[random_() % ids.size()]);
  }

  void Retire(plan::SequenceId id) {
    ASSERT_NE(scheduler_.Retire(id), nullptr);
    retired_.insert(id.value);
  }

  bool Plan() {
    const auto plan = scheduler_.Next();
    if (!plan) return false;
    EXPECT_EQ(plan->number.value, ++last_plan_);
    EXPECT_LE(plan->rows(), scheduler_.max_rows());
    EXPECT_LE(static_cast<int64_t>(plan->slices.size()), scheduler_.max_slices());
    for (const plan::SequenceId id : plan->released) {
      EXPECT_EQ(ranks_.erase(id.value), 1u) << "released, but never started";
      EXPECT_EQ(retired_.count(id.value), 1u);
    }
    for (const plan::SequenceStart& start : plan->started) {
      EXPECT_TRUE(ranks_.try_emplace(start.sequence.value).second) << "started twice";
    }
    for (const plan::Slice& slice : plan->slices) CheckSlice(slice);
    CheckPages();
    for (const plan::SequenceId id : scheduler_.Ids()) {
      EXPECT_LE(scheduler_.Find(id)->pending.size(), 2u);
    }
    in_flight_.push_back(*plan);
    return true;
  }

  void CheckSlice(const plan::Slice& slice) {
    ASSERT_EQ(ranks_.count(slice.sequence.value), 1u) << "rows of a sequence that was not started";
    Known& known = ranks_[slice.sequence.value];
    EXPECT_EQ(slice.begin, known.computed) << "every position once, in order";
    known.computed = slice.end();
    known.pages.insert(known.pages.end(), slice.new_pages.begin(), slice.new_pages.end());
    EXPECT_GE(static_cast<int64_t>(known.pages.size()) * kPageSize, slice.end());
    const Sequence* sequence = scheduler_.Find(slice.sequence);
    ASSERT_NE(sequence, nullptr);
    EXPECT_LE(slice.end(), CachedPositions(sequence->request, kLimits));
    for (size_t i = 0; i < slice.tokens.size(); ++i) {
      const int64_t position = slice.begin + static_cast<int64_t>(i);
      if (position < sequence->prompt_length()) {
        EXPECT_EQ(slice.tokens[i].literal, sequence->request.prompt[position]);
      } else if (!slice.tokens[i].is_literal()) {
        EXPECT_LT(slice.tokens[i].plan.value, last_plan_) << "of an earlier plan";
      }
    }
  }

  // No page belongs to two sequences that the ranks know.
  void CheckPages() {
    std::set<kv::PageId> seen;
    for (const auto& [id, known] : ranks_)
      for (const kv::PageId page : known.pages) {
        EXPECT_TRUE(seen.insert(page).second) << "page " << page << " is shared";
      }
  }

  // Commits the oldest plan in flight, as the engine does.
  void Answer() {
    const plan::StepPlan plan = std::move(in_flight_.front());
    in_flight_.pop_front();
    for (const plan::LogitsRow& row : plan.logits_rows) {
      Sequence* sequence = scheduler_.Find(plan.slices[row.slice].sequence);
      if (sequence == nullptr) continue;
      ASSERT_FALSE(sequence->pending.empty());
      EXPECT_EQ(sequence->pending.front().plan, plan.number);
      EXPECT_EQ(row.position,
                sequence->prompt_length() - 1 + static_cast<int64_t>(sequence->output.size()));
      Commit(scheduler_, sequence->id.value, static_cast<int32_t>(random_() % 1000));
      // Some end early, at a stop token.
      if (static_cast<int64_t>(sequence->output.size()) == sequence->output_limit ||
          random_() % 8 == 0) {
        ++finished_;
        Retire(sequence->id);
      }
    }
    for (const plan::Slice& slice : plan.slices) {
      const Sequence* sequence = scheduler_.Find(slice.sequence);
      if (sequence == nullptr || sequence->output_limit > 0 ||
          slice.end() < sequence->prompt_length())
        continue;
      ++finished_;
      Retire(slice.sequence);
    }
  }

  std::mt19937_64 random_;
  int stages_;
  Scheduler scheduler_;
  std::deque<plan::StepPlan> in_flight_;
  std::map<int64_t, Known> ranks_;
  std::set<int64_t> retired_;
  int64_t last_id_ = 0;
  uint64_t last_plan_ = 0;
  int finished_ = 0;
};

TEST(SchedulerTest, HoldsItsPromisesUnderAnyLoad) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (uint64_t seed = 1; seed <= 25; ++seed) {
      SCOPED_TRACE(fmt::format("seed {} stages {}", seed, stages));
      RandomLoad(seed, stages).Run();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace longspan::engine
