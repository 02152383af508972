// What must hold of the scheduler under any load: arrivals and aborts at random, ranks that answer
// late, prompts that begin like earlier ones, more of them than there are pages, outputs that
// outgrow the pages that are left.
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/mix_bits.h"
#include "engine/scheduler.h"
#include "tests/support/effort.h"

namespace longspan::engine {
namespace {

using longspan::testing::Effort;

constexpr int kPageSize = 4;
constexpr int64_t kPages = 24;
constexpr RequestLimits kLimits = {.vocab_size = 1000,
                                   .context_length = 64,
                                   .capacity_tokens = kPages * kPageSize,
                                   .page_size = kPageSize};

// A model that attends to everything: the KV of a position is a hash of all tokens up to it, and
// the next token follows from it.
uint64_t Kv(uint64_t before, int32_t token) {
  return base::MixBits(before * 31 + static_cast<uint64_t>(token) + 1);
}
int32_t NextToken(uint64_t kv) { return static_cast<int32_t>(kv % 1000); }

// What a prompt and its output are to be, by position.
struct Expected {
  explicit Expected(const std::vector<int32_t>& prompt) : tokens(prompt) {
    for (size_t i = 0; i < static_cast<size_t>(kLimits.context_length); ++i) {
      if (i == tokens.size()) tokens.push_back(NextToken(kv.back()));
      kv.push_back(Kv(i == 0 ? 0 : kv.back(), tokens[i]));
    }
  }
  std::vector<int32_t> tokens;
  std::vector<uint64_t> kv;
};

constexpr std::array kPolicies = {ChunkPolicy::Kind::kFixed, ChunkPolicy::Kind::kPlanned,
                                  ChunkPolicy::Kind::kQuadratic};

class RandomLoad {
 public:
  RandomLoad(uint64_t seed, int stages)
      : random_(seed),
        stages_(stages),
        grows_(seed % 2 == 0),
        scheduler_({.chunk_tokens = 1 + static_cast<int64_t>(random_() % 12),
                    .max_running = 1 + static_cast<int64_t>(random_() % 8),
                    .reuse_prefixes = seed % 4 != 0,
                    .chunk_policy = {.kind = kPolicies[seed / 2 % kPolicies.size()]},
                    .stages = stages,
                    .max_decode_stall_s = seed % 3 == 0 ? std::optional(0.005) : std::nullopt},
                   kPages, kPageSize) {}

  void Run() {
    for (int step = 0; step < 300 || !scheduler_.idle() || !in_flight_.empty(); ++step) {
      ASSERT_LT(step, 20000) << "does not end";
      if (step < 300 && random_() % 4 == 0) Arrive();
      if (step < 300 && random_() % 16 == 0) AbortOne();
      bool planned = false;
      if (static_cast<int>(in_flight_.size()) <= stages_) planned = Plan();
      ASSERT_TRUE(planned || scheduler_.idle() || !in_flight_.empty()) << "nothing can go on";
      if (!in_flight_.empty() && (!planned || random_() % 2 == 0)) Answer();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(scheduler_.pages().in_use(), 0);
    EXPECT_GT(finished_, 10);
    // Every page can be had again, none has a user left.
    PageLedger pages = scheduler_.pages();
    Sequence all;
    all.request.prompt = {-1};
    EXPECT_TRUE(pages.Reserve(all, kPages, 0));
    pages.Release(all);
    EXPECT_EQ(pages.pool().free_pages(), kPages);
  }

  int64_t cached_tokens() const { return cached_tokens_; }
  int64_t preemptions() const { return scheduler_.preemptions(); }

 private:
  // What the ranks know of a sequence.
  struct Known {
    explicit Known(const std::vector<int32_t>& prompt) : expected(prompt) {}
    int64_t computed = -1;  // positions below are planned; below 0: none yet
    std::vector<kv::PageId> pages;
    Expected expected;
  };

  // Half of the prompts go on where an earlier one, or its output, was.
  void Arrive() {
    std::vector<int32_t> prompt;
    if (!prompts_.empty() && random_() % 2 == 0) {
      prompt = Expected(prompts_[random_() % prompts_.size()]).tokens;
      prompt.resize(random_() % 32);
    }
    for (auto more = 1 + random_() % (grows_ ? 8 : 24); more > 0; --more)
      prompt.push_back(static_cast<int32_t>(random_() % 1000));
    prompts_.push_back(prompt);
    auto sequence = std::make_unique<Sequence>();
    sequence->id = {++last_id_};
    sequence->request = {.prompt = std::move(prompt),
                         .max_tokens = static_cast<int64_t>(random_() % (grows_ ? 50 : 8))};
    if (random_() % 2 == 0) sequence->request.sampling.presence_penalty = 1;
    sequence->submitted = now_;
    ASSERT_TRUE(scheduler_.Enqueue(std::move(sequence), kLimits).ok());
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
    now_ += std::chrono::microseconds(random_() % 2000);
    const auto plan = scheduler_.Next(now_);
    if (!plan) return false;
    EXPECT_EQ(plan->number.value, ++last_plan_);
    EXPECT_LE(plan->rows(), scheduler_.max_rows());
    EXPECT_LE(static_cast<int64_t>(plan->slices.size()), scheduler_.max_slices());
    for (const plan::SequenceId id : plan->released) {
      EXPECT_EQ(ranks_.erase(id.value), 1u) << "released, but never started";
      EXPECT_NE(retired_.count(id.value) == 1, scheduler_.Find(id) != nullptr) << "preempted";
    }
    for (const plan::SequenceStart& start : plan->started) Start(start);
    for (const plan::Slice& slice : plan->slices) Compute(slice);
    for (const plan::SequenceId id : scheduler_.Ids()) {
      EXPECT_LE(scheduler_.Find(id)->pending.size(), 2u);
    }
    in_flight_.push_back(*plan);
    return true;
  }

  void Start(const plan::SequenceStart& start) {
    const Sequence& sequence = *scheduler_.Find(start.sequence);
    const Known known(sequence.request.prompt);
    EXPECT_TRUE(ranks_.emplace(start.sequence.value, known).second) << "started twice";
    if (!sequence.resumed()) cached_tokens_ += sequence.cached_tokens;
    if (!start.sampling.has_penalties()) return;
    EXPECT_EQ(start.prompt, sequence.request.prompt);
    EXPECT_EQ(start.output, sequence.output) << "whose tokens are all committed";
  }

  // As a rank does, which has nothing but the plan and its cache.
  void Compute(const plan::Slice& slice) {
    const auto found = ranks_.find(slice.sequence.value);
    ASSERT_NE(found, ranks_.end()) << "rows of a sequence that was not started";
    Known& known = found->second;
    const Sequence* sequence = scheduler_.Find(slice.sequence);
    ASSERT_NE(sequence, nullptr);
    const int64_t begin = known.computed < 0 ? sequence->prefill_begin : known.computed;
    if (known.computed < 0) {
      EXPECT_LT(begin, sequence->prefill_length()) << "no row is left to compute";
    }
    EXPECT_EQ(slice.begin, begin) << "every position once, in order";
    EXPECT_LE(slice.end(), CachedPositions(sequence->request, kLimits));
    known.computed = slice.end();
    known.pages.insert(known.pages.end(), slice.new_pages.begin(), slice.new_pages.end());
    ASSERT_GE(static_cast<int64_t>(known.pages.size()) * kPageSize, slice.end());
    for (int64_t position = begin; position < slice.end(); ++position) {
      CheckToken(slice.tokens[static_cast<size_t>(position - begin)], known, position);
      kv_[Slot(known, position)] = known.expected.kv[static_cast<size_t>(position)];
    }
    for (int64_t position = 0; position < slice.end(); ++position)
      ASSERT_EQ(kv_[Slot(known, position)], known.expected.kv[static_cast<size_t>(position)])
          << "sequence " << slice.sequence.value << " reads other KV at " << position;
  }

  void CheckToken(const plan::TokenSource& source, const Known& known, int64_t position) const {
    if (source.is_literal()) {
      EXPECT_EQ(source.literal, known.expected.tokens[static_cast<size_t>(position)]);
    } else {
      EXPECT_LT(source.plan.value, last_plan_) << "of an earlier plan";
    }
  }

  static size_t Slot(const Known& known, int64_t position) {
    const kv::PageId page = known.pages[static_cast<size_t>(position / kPageSize)];
    return static_cast<size_t>(int64_t{page} * kPageSize + position % kPageSize);
  }

  // Commits the oldest plan in flight, as the engine does.
  void Answer() {
    const plan::StepPlan plan = std::move(in_flight_.front());
    in_flight_.pop_front();
    scheduler_.OnComputed(plan);
    scheduler_.OnMeasured(plan, 1e-4 * static_cast<double>(plan.rows()));
    for (const plan::LogitsRow& row : plan.logits_rows) {
      Sequence* sequence = scheduler_.Find(plan.slices[row.slice].sequence);
      if (sequence == nullptr) continue;
      ASSERT_FALSE(sequence->pending.empty());
      EXPECT_EQ(sequence->pending.front().plan, plan.number);
      EXPECT_EQ(row.position,
                sequence->prompt_length() - 1 + static_cast<int64_t>(sequence->output.size()));
      sequence->pending.pop_front();
      const Known& known = ranks_.at(sequence->id.value);
      sequence->output.push_back(known.expected.tokens[static_cast<size_t>(row.position) + 1]);
      // Some end early, at a stop token.
      if (static_cast<int64_t>(sequence->output.size()) == sequence->output_limit ||
          random_() % (grows_ ? 64 : 8) == 0) {
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
  bool grows_;  // long outputs after short prompts
  base::Clock::Duration now_{};
  Scheduler scheduler_;
  std::deque<plan::StepPlan> in_flight_;
  std::map<int64_t, Known> ranks_;
  std::vector<uint64_t> kv_ = std::vector<uint64_t>(kPages * kPageSize);  // the ranks' cache
  std::vector<std::vector<int32_t>> prompts_;
  std::set<int64_t> retired_;
  int64_t last_id_ = 0;
  uint64_t last_plan_ = 0;
  int finished_ = 0;
  int64_t cached_tokens_ = 0;
};

TEST(SchedulerLoadTest, HoldsItsPromises) {
  constexpr uint64_t kSeeds = Effort(50, 8);
  int64_t preemptions = 0;
  int64_t cached_tokens = 0;
  for (int stages = 1; stages <= 4; ++stages) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("seed {} stages {}", seed, stages));
      RandomLoad load(seed, stages);
      load.Run();
      if (HasFailure()) return;
      preemptions += load.preemptions();
      if (seed % 4 == 0) {
        EXPECT_EQ(load.cached_tokens(), 0);
      }
      cached_tokens += load.cached_tokens();
    }
  }
  EXPECT_GT(preemptions, Effort(200, 20));
  EXPECT_GT(cached_tokens, Effort(10000, 1000));
}

}  // namespace
}  // namespace longspan::engine
