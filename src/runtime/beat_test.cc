#include "runtime/beat.h"

#include <future>

#include <gtest/gtest.h>

#include "comm/in_process/in_process.h"

namespace longspan::runtime {
namespace {

using base::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Beats as fast as a test may be; a peer that is silent for 100 ms is lost.
RankConfig FastConfig() {
  return {.epoch = {7}, .beat_every_ms = 5, .peer_timeout_ms = 100, .watchdog_timeout_ms = 300};
}

Beat NextBeat(comm::Channel& channel) {
  const auto frame = channel.ReceiveFor(seconds(20));
  EXPECT_TRUE(frame.ok()) << frame.status().message();
  const auto beat = DecodeBeat(*frame);
  EXPECT_TRUE(beat.ok()) << beat.status().message();
  return *beat;
}

TEST(BeatTest, IsWhatWasSent) {
  const auto beat = DecodeBeat(EncodeBeat({{3}, {41}, 1500}));
  ASSERT_TRUE(beat.ok());
  EXPECT_EQ(beat->epoch, plan::Epoch{3});
  EXPECT_EQ(beat->computing, plan::PlanNumber{41});
  EXPECT_EQ(beat->computing_ms, 1500);
  Frame broken = EncodeBeat({});
  broken.pop_back();
  EXPECT_EQ(DecodeBeat(broken).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeBeat(EncodeAllocated()).status().code(), StatusCode::kDataLoss);
}

TEST(RankBeatsTest, TellHowLongAPlanComputes) {
  auto [leader, rank] = comm::CreateInProcessChannelPair();
  ComputeWatch watch;
  const RankBeats beats(FastConfig(), *rank, watch);
  Beat beat = NextBeat(*leader);
  EXPECT_EQ(beat.epoch, plan::Epoch{7});
  EXPECT_EQ(beat.computing, plan::PlanNumber{0});
  {
    const ComputeWatch::Scope computing(&watch, {4});
    while ((beat = NextBeat(*leader)).computing_ms < 20) EXPECT_EQ(beat.computing_ms % 5, 0);
    EXPECT_EQ(beat.computing, plan::PlanNumber{4});
  }
  // Another plan is counted from its own beginning.
  const ComputeWatch::Scope computing(&watch, {5});
  while ((beat = NextBeat(*leader)).computing != plan::PlanNumber{5}) {
  }
  EXPECT_EQ(beat.computing_ms, 0);
}

TEST(RankBeatsTest, GoOnWhileNobodyReads) {
  auto [leader, rank] = comm::CreateInProcessChannelPair({.max_frames = 2});
  ComputeWatch watch;
  const RankBeats beats(FastConfig(), *rank, watch);
  std::this_thread::sleep_for(milliseconds(50));
  for (int i = 0; i < 10; ++i) NextBeat(*leader);
}

TEST(ReceiveFromLeaderTest, BeatsKeepARankWaiting) {
  auto [leader, rank] = comm::CreateInProcessChannelPair();
  auto received =
      std::async(std::launch::async, [&] { return ReceiveFromLeader(*rank, FastConfig()); });
  for (int i = 0; i < 60; ++i) {  // three times the peer timeout
    ASSERT_TRUE(leader->Send(EncodeBeat({})).ok());
    std::this_thread::sleep_for(milliseconds(5));
  }
  ASSERT_TRUE(leader->Send(EncodeAllocate(3)).ok());
  const auto frame = received.get();
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  EXPECT_EQ(DecodeAllocate(*frame).value(), 3);
}

TEST(ReceiveFromLeaderTest, ASilentLeaderEndsTheEpoch) {
  auto [leader, rank] = comm::CreateInProcessChannelPair();
  EXPECT_EQ(ReceiveFromLeader(*rank, FastConfig()).status().code(), StatusCode::kUnavailable);
  leader->Close();
  EXPECT_EQ(ReceiveFromLeader(*rank, FastConfig()).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace longspan::runtime
