// The engine over connections that misbehave: the right tokens or a clear error, soon; never a
// wrong token, never a page that stays taken.
//
// A lost message is not among the faults, except a plan that another one follows: only the watchdog
// can tell (replay_test.cc).
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/engine/faulty_engine.h"

namespace longspan::testing {
namespace {

using comm::FaultPlan;

class FaultsTest : public ::testing::Test {
 protected:
  // Runs the requests; true when they came to their end. Checks what must hold in either case.
  bool Run(const Faults& faults, const std::string& what) {
    const HangGuard guard(what);
    auto engine = StartFaulty({.faults = [&](plan::Epoch) { return faults; }});
    if (!engine.ok()) {
      EXPECT_FALSE(engine.status().message().empty()) << what;
      return false;
    }
    CollectingSink sink;
    std::vector<int64_t> sequences;
    for (engine::Request& request : FaultyRequests())
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

  const std::vector<std::vector<int32_t>> expected_ = ExpectedOutputs();
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
  for (int stage = 0; stage < kFaultyStages; ++stage) {
    for (const uint64_t message : {2, 3, 5}) {  // the first two configure and allocate
      const auto what = fmt::format("message {} to stage {} lost", message, stage);
      EXPECT_FALSE(Run({{{Line::kPlans, stage}, {.drop = {message}}}}, what)) << what;
    }
  }
}

}  // namespace
}  // namespace longspan::testing
