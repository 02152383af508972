#include "runtime/plan_source.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/in_process.h"
#include "runtime/beat.h"
#include "runtime/rank_log.h"

namespace longspan::runtime {
namespace {

using base::StatusCode;
using ::testing::HasSubstr;

// Beats as fast as a test may be; a leader that is silent for 100 ms is lost.
RankConfig FastConfig() { return {.beat_every_ms = 5, .peer_timeout_ms = 100}; }

Frame PlanFrame(uint64_t number) {
  return EncodePlan({.number = {number},
                     .slices = {{.sequence = {1}, .tokens = {plan::TokenSource::Literal(4)}}}});
}

uint64_t NumberOf(const base::Result<Frame>& frame) {
  EXPECT_TRUE(frame.ok()) << frame.status().message();
  return DecodePlan(*frame).value().number.value;
}

// A rank of a node of two, whose leader is here or on another host.
class PlanSourceTest : public ::testing::Test {
 protected:
  PlanSourceTest() {
    std::tie(leader_, links_.leader) = comm::CreateInProcessChannelPair();
    auto log = comm::CreateInProcessJournal(2);
    links_.plans = std::move(log.readers[0]);
    other_ = std::move(log.readers[1]);
    writer_ = std::move(log.writer);
  }
  void TearDown() override { links_.Close(); }

  void LeaderIsOnAnotherHost() { links_.relay = std::move(writer_); }
  // While it is used, the leader beats.
  Periodic Beats() {
    return {std::chrono::milliseconds(5), [this] { (void)leader_->Send(EncodeBeat({})); }};
  }

  RankLinks links_;
  std::unique_ptr<comm::Channel> leader_;
  std::unique_ptr<comm::JournalWriter> writer_;
  std::unique_ptr<comm::JournalReader> other_;
};

TEST_F(PlanSourceTest, PlansComeFromTheLogWhileTheLeaderBeats) {
  PlanSource source(FastConfig(), links_);
  const auto beats = Beats();
  for (uint64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(writer_->Append(PlanFrame(number)).ok());
    EXPECT_EQ(NumberOf(source.Next()), number);
    // Longer than a silent leader has.
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  links_.Close();
}

TEST_F(PlanSourceTest, ASilentLeaderIsTheEnd) {
  PlanSource source(FastConfig(), links_);
  const base::Status end = source.Next().status();
  EXPECT_EQ(end.code(), StatusCode::kUnavailable);
  EXPECT_THAT(end.message(), HasSubstr("the leader has given no sign of life for 0.1 s"));
  links_.Close();
}

TEST_F(PlanSourceTest, EitherConnectionEndsTheWaiting) {
  for (const bool log : {true, false}) {
    RankLinks links;
    auto [leader, channel] = comm::CreateInProcessChannelPair();
    auto journal = comm::CreateInProcessJournal(1);
    links.leader = std::move(channel);
    links.plans = std::move(journal.readers[0]);
    PlanSource source({.beat_every_ms = 60000, .peer_timeout_ms = 120000}, links);
    std::thread closing([&, &end = leader] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      log ? journal.writer->Close() : end->Close();
    });
    EXPECT_EQ(source.Next().status().code(), StatusCode::kUnavailable);
    closing.join();
    links.Close();
  }
}

TEST_F(PlanSourceTest, AnotherHostsLeaderWritesThroughTheFirstRank) {
  LeaderIsOnAnotherHost();
  PlanSource source(FastConfig(), links_);
  const auto beats = Beats();
  for (uint64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(leader_->Send(PlanFrame(number)).ok());
    EXPECT_EQ(NumberOf(source.Next()), number);
    EXPECT_EQ(NumberOf(other_->Receive()), number);
  }
  // The others find this rank's end.
  links_.Close();
  EXPECT_EQ(other_->Receive().status().code(), StatusCode::kUnavailable);
}

TEST_F(PlanSourceTest, WhatIsNotDueIsRefused) {
  for (const Frame& frame : {PlanFrame(1), EncodeAllocate(5), Frame(3)}) {
    RankLinks links;
    auto [leader, channel] = comm::CreateInProcessChannelPair();
    auto journal = comm::CreateInProcessJournal(1);
    links.leader = std::move(channel);
    links.plans = std::move(journal.readers[0]);
    PlanSource source(FastConfig(), links);
    ASSERT_TRUE(leader->Send(frame).ok());
    EXPECT_EQ(source.Next().status().code(), StatusCode::kDataLoss);
    links.Close();
  }
}

// A handle that notes what is sent over its channel.
class FakeRank : public RankHandle {
 public:
  FakeRank() : ends_(comm::CreateInProcessChannelPair()) {}
  comm::Channel& channel() override { return *ends_.first; }
  void RequestEnd() override { ends_.first->Close(); }
  std::string DescribeEnd() override { return "ended"; }
  comm::Channel& rank_end() { return *ends_.second; }

 private:
  comm::ChannelPair ends_;
};

TEST(ShareLogTest, APlanIsWrittenOnceForTheNode) {
  for (const bool here : {true, false}) {
    std::vector<std::unique_ptr<RankHandle>> ranks;
    std::vector<comm::Channel*> ends;
    for (int i = 0; i < 3; ++i) {
      auto rank = std::make_unique<FakeRank>();
      ends.push_back(&rank->rank_end());
      ranks.push_back(std::move(rank));
    }
    auto log = comm::CreateInProcessJournal(3);
    ranks = ShareLog(std::move(ranks), here ? std::move(log.writer) : nullptr);
    for (const auto& rank : ranks) ASSERT_TRUE(rank->SendPlan(PlanFrame(1)).ok());
    const auto over_channel = [&](int rank) {
      return ends[rank]->ReceiveFor(std::chrono::nanoseconds(0)).ok();
    };
    EXPECT_EQ(over_channel(0), !here);
    EXPECT_FALSE(over_channel(1) || over_channel(2));
    if (here) {
      for (const auto& reader : log.readers) EXPECT_EQ(NumberOf(reader->Receive()), 1u);
      ranks[0]->RequestEnd();
      for (const auto& reader : log.readers)
        EXPECT_EQ(reader->Receive().status().code(), StatusCode::kUnavailable);
    }
    EXPECT_EQ(ranks[2]->DescribeEnd(), "ended");
  }
}

}  // namespace
}  // namespace longspan::runtime
