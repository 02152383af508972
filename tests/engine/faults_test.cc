// The engine over connections that misbehave: the right tokens or a clear error, soon; never a
// wrong token, never a page that stays taken.
//
// A lost message is not among the faults, except a plan that another one follows: the transports do
// not lose any while both ends live, and nothing here waits with a time limit.
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/wiring.h"
#include "comm/fault/fault.h"
#include "comm/in_process/in_process.h"
#include "runtime/rank_handle.h"
#include "runtime/stage_group.h"
#include "tests/engine/engine_harness.h"

namespace longspan::testing {
namespace {

using comm::FaultPlan;

constexpr int kStages = 3;  // of the three layers of rand-llama
constexpr int kVocab = 320;
constexpr int64_t kContext = 2048;
const char* const kModel = "rand-llama";

// Which connection misbehaves, and at which stage's sending end.
enum class Line { kPlans, kResults, kResidual, kTokens };
struct Place {
  Line line;
  int stage;  // whose plans, results, output

  std::string ToString() const {
    constexpr const char* kNames[] = {"plans to", "results of", "residuals of", "tokens of"};
    return fmt::format("{} stage {}", kNames[static_cast<int>(line)], stage);
  }
};

std::vector<Place> AllPlaces() {
  std::vector<Place> places;
  for (int stage = 0; stage < kStages; ++stage) {
    places.push_back({Line::kPlans, stage});
    places.push_back({Line::kResults, stage});
    if (stage + 1 < kStages) places.push_back({Line::kResidual, stage});
  }
  places.push_back({Line::kTokens, kStages - 1});
  return places;
}

using Faults = std::vector<std::pair<Place, FaultPlan>>;

std::vector<std::unique_ptr<runtime::RankHandle>> StartRanks(const Faults& faults) {
  const auto wrap = [&](Line line, int stage, auto& end, auto create) {
    for (const auto& [place, plan] : faults)
      if (place.line == line && place.stage == stage) end = create(std::move(end), plan);
  };
  std::vector<runtime::RankLinks> links(kStages);
  std::vector<std::unique_ptr<comm::Channel>> leaders(kStages);
  for (int stage = 0; stage < kStages; ++stage) {
    std::tie(leaders[stage], links[stage].leader) = comm::CreateInProcessChannelPair();
    wrap(Line::kPlans, stage, leaders[stage], comm::CreateFaultInjectingChannel);
    wrap(Line::kResults, stage, links[stage].leader, comm::CreateFaultInjectingChannel);
    if (stage == 0) continue;
    std::tie(links[stage - 1].next, links[stage].previous) = comm::CreateInProcessLinkPair();
    wrap(Line::kResidual, stage - 1, links[stage - 1].next, comm::CreateFaultInjectingLink);
  }
  std::tie(links.back().tokens, links.front().tokens) = comm::CreateInProcessChannelPair();
  wrap(Line::kTokens, kStages - 1, links.back().tokens, comm::CreateFaultInjectingChannel);
  std::vector<std::unique_ptr<runtime::RankHandle>> ranks;
  for (int stage = 0; stage < kStages; ++stage)
    ranks.push_back(runtime::StartRankThread(std::move(leaders[stage]), std::move(links[stage]),
                                             apps::FindBackend));
  return ranks;
}

base::Result<std::unique_ptr<engine::Engine>> StartFaulty(const Faults& faults) {
  const engine::SchedulerOptions scheduler = {.chunk_tokens = 16, .max_running = 8};
  std::vector<runtime::RankConfig> configs;
  for (int stage = 0; stage < kStages; ++stage)
    configs.push_back({.model_dir = ModelFolder(kModel).string(),
                       .backend = "reference",
                       .stage = stage,
                       .stages = kStages,
                       .ranges = {{stage, stage + 1}},
                       .max_rows = scheduler.chunk_tokens + scheduler.max_running,
                       .max_slices = 2 * scheduler.max_running,
                       .max_context = kContext});
  LONGSPAN_ASSIGN_OR_RETURN(auto group, runtime::StageGroup::BringUp(StartRanks(faults), configs,
                                                                     {.max_total_tokens = 4096}));
  return std::make_unique<engine::Engine>(
      std::move(group),
      engine::EngineOptions{
          .scheduler = scheduler, .vocab_size = kVocab, .context_length = kContext});
}

std::vector<engine::Request> Requests() {
  std::vector<engine::Request> requests;
  for (int i = 0; i < 3; ++i)
    requests.push_back({.prompt = RandomIds(5 + 60 * i, kVocab, static_cast<uint64_t>(i)),
                        .max_tokens = 4 + i,
                        .ignore_end_tokens = true});
  return requests;
}

class Sink : public engine::OutputSink {
 public:
  bool OnToken(plan::SequenceId sequence, const engine::TokenOutput& token) override {
    ids[sequence.value].push_back(token.token);
    return true;
  }
  void OnFinish(plan::SequenceId sequence, engine::FinishReason reason,
                const engine::FinishInfo& /*info*/) override {
    EXPECT_EQ(reasons.count(sequence.value), 0u) << "finished twice";
    reasons[sequence.value] = reason;
  }

  std::map<int64_t, std::vector<int32_t>> ids;
  std::map<int64_t, engine::FinishReason> reasons;
};

// Ends the whole test program where a test hangs: what hangs cannot be joined.
class HangGuard {
 public:
  explicit HangGuard(std::string what)
      : thread_([this, what = std::move(what)] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, std::chrono::seconds(60), [this] { return done_; })) return;
          fmt::print(stderr, "hangs: {}\n", what);
          std::abort();
        }) {}
  ~HangGuard() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() {
    const auto engine = Start(ModelFolder(kModel), {});
    for (const Generated& output : Generate(*engine, Requests())) expected_.push_back(output.ids);
  }

  // Runs the requests; true when they came to their end. Checks what must hold in either case.
  bool Run(const Faults& faults, const std::string& what) {
    const HangGuard guard(what);
    auto engine = StartFaulty(faults);
    if (!engine.ok()) {
      EXPECT_FALSE(engine.status().message().empty()) << what;
      return false;
    }
    Sink sink;
    std::vector<int64_t> sequences;
    for (engine::Request& request : Requests())
      sequences.push_back((*engine)->Submit(std::move(request), &sink).value().value);
    const base::Status status = (*engine)->RunUntilIdle();
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(sink.reasons.count(sequences[i]), 1u) << what << ": not finished";
      const auto& ids = sink.ids[sequences[i]];
      // What was given out before an error was right.
      const bool whole = sink.reasons[sequences[i]] == engine::FinishReason::kLength;
      EXPECT_LE(ids.size(), expected_[i].size()) << what;
      EXPECT_EQ(ids, std::vector(expected_[i].begin(),
                                 expected_[i].begin() + static_cast<ptrdiff_t>(std::min(
                                                            ids.size(), expected_[i].size()))))
          << what;
      if (status.ok() || whole) {
        EXPECT_EQ(ids.size(), expected_[i].size()) << what;
      }
    }
    if (!status.ok()) {
      EXPECT_FALSE(status.message().empty()) << what;
      EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
    }
    EXPECT_EQ((*engine)->pages().in_use(), 0) << what;
    return status.ok();
  }

  std::vector<std::vector<int32_t>> expected_;
};

TEST_F(FaultsTest, WithoutFaultsAllIsRight) { EXPECT_TRUE(Run({}, "no faults")); }

TEST_F(FaultsTest, SlowLinesChangeNoToken) {
  const FaultPlan slow = {.delay = std::chrono::milliseconds(2)};
  Faults all;
  for (const Place& place : AllPlaces()) {
    EXPECT_TRUE(Run({{place, slow}}, "slow " + place.ToString()));
    all.emplace_back(place, slow);
  }
  EXPECT_TRUE(Run(all, "slow everywhere"));
}

// The places at once: the leader waits up to half a second for what other ranks may still say.
TEST_F(FaultsTest, ALineThatEndsAtAnyMessageIsAnError) {
  std::vector<std::thread> threads;
  for (const Place& place : AllPlaces()) {
    threads.emplace_back([this, place] {
      for (const uint64_t message : {0, 1, 2, 3, 4, 5, 8, 11}) {
        const auto what = fmt::format("{} end at message {}", place.ToString(), message);
        EXPECT_FALSE(Run({{place, {.kill_at = message}}}, what)) << what;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(FaultsTest, ATruncatedMessageIsAnError) {
  for (const Place& place : AllPlaces()) {
    for (const uint64_t message : {0, 1, 2, 3, 5, 8}) {
      const auto what = fmt::format("message {} of {} truncated", message, place.ToString());
      EXPECT_FALSE(Run({{place, {.truncate = {message}}}}, what)) << what;
    }
  }
}

TEST_F(FaultsTest, ARepeatedMessageIsHarmlessOrAnError) {
  for (const Place& place : AllPlaces()) {
    const bool harmless = place.line == Line::kTokens || place.line == Line::kResidual;
    for (const uint64_t message : {0, 1, 2, 3, 5, 8}) {
      const auto what = fmt::format("message {} of {} twice", message, place.ToString());
      EXPECT_EQ(Run({{place, {.duplicate = {message}}}}, what), harmless) << what;
    }
  }
}

TEST_F(FaultsTest, ALostPlanIsNoticedAtTheNextOne) {
  for (int stage = 0; stage < kStages; ++stage) {
    for (const uint64_t message : {2, 3, 5}) {  // the first two configure and allocate
      const auto what = fmt::format("message {} to stage {} lost", message, stage);
      EXPECT_FALSE(Run({{{Line::kPlans, stage}, {.drop = {message}}}}, what)) << what;
    }
  }
}

}  // namespace
}  // namespace longspan::testing
