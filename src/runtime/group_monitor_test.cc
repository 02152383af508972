#include "runtime/group_monitor.h"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/in_process.h"

namespace longspan::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int64_t kLong = 3600 * 1000;

RankConfig Times(int64_t peer_ms, int64_t watchdog_ms) {
  return {.epoch = {2},
          .beat_every_ms = 5,
          .peer_timeout_ms = peer_ms,
          .watchdog_timeout_ms = watchdog_ms};
}

// A monitor of two ranks, whose ends of the channels the test has.
class GroupMonitorTest : public ::testing::Test {
 protected:
  void Start(const RankConfig& config) {
    std::vector<comm::Channel*> channels;
    for (int rank = 0; rank < 2; ++rank) {
      auto [leader, end] = comm::CreateInProcessChannelPair();
      channels.push_back(leader.get());
      leaders_.push_back(std::move(leader));
      ranks_.push_back(std::move(end));
    }
    monitor_ = std::make_unique<GroupMonitor>(config, channels, [this](size_t rank, auto status) {
      lost_.set_value({rank, std::move(status)});  // throws when it is told twice
    });
  }
  std::pair<size_t, std::string> Lost() {
    const auto [rank, status] = lost_.get_future().get();
    EXPECT_EQ(status.code(), base::StatusCode::kDeadlineExceeded);
    return {rank, status.message()};
  }
  // Ranks that live for `time`: they beat.
  void Live(milliseconds time, const std::vector<size_t>& ranks, const Beat& beat = {}) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      for (const size_t rank : ranks) {
        monitor_->OnSign(rank);
        monitor_->OnBeat(rank, beat);
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

  std::vector<std::unique_ptr<comm::Channel>> leaders_;
  std::vector<std::unique_ptr<comm::Channel>> ranks_;
  std::promise<std::pair<size_t, base::Status>> lost_;
  std::unique_ptr<GroupMonitor> monitor_;
};

TEST_F(GroupMonitorTest, ASilentRankIsLost) {
  Start(Times(100, kLong));
  Live(milliseconds(150), {0, 1});
  std::thread living([this] { Live(milliseconds(300), {0}); });
  const auto [rank, sentence] = Lost();
  EXPECT_EQ(rank, 1u);
  EXPECT_EQ(sentence, "stage 1 is lost: it has given no sign of life for 0.1 s (--peer-timeout)");
  living.join();
}

TEST_F(GroupMonitorTest, ReadyRanksGetBeatsOfTheEpoch) {
  Start(Times(kLong, kLong));
  monitor_->OnReady(1);
  const auto frame = ranks_[1]->ReceiveFor(seconds(20));
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(DecodeBeat(*frame)->epoch, plan::Epoch{2});
  EXPECT_FALSE(ranks_[0]->ReceiveFor(milliseconds(0)).ok());
}

TEST_F(GroupMonitorTest, ALongPlanIsAStall) {
  Start(Times(kLong, 1000));
  Live(milliseconds(50), {0, 1}, {{2}, {9}, 999});
  // Of another epoch.
  monitor_->OnBeat(1, {{1}, {9}, 5000});
  std::this_thread::sleep_for(milliseconds(50));
  monitor_->OnBeat(0, {{2}, {9}, 1000});
  const auto [rank, sentence] = Lost();
  EXPECT_EQ(rank, 0u);
  EXPECT_THAT(sentence, HasSubstr("stage 0 is stalled: plan 9 has been computing for 1.0 s"));
}

TEST_F(GroupMonitorTest, PlansThatNobodyReportsAreAStall) {
  Start(Times(60, 60));
  Live(milliseconds(200), {0, 1});  // nothing is in flight
  monitor_->OnSubmit();
  monitor_->OnResult();
  std::thread living([this] { Live(milliseconds(1000), {0, 1}); });
  EXPECT_THAT(Lost().second, HasSubstr("no stage has reported one for 0.1 s"));
  living.join();
}

TEST_F(GroupMonitorTest, ReportedPlansAndEndedRanksAreNoLoss) {
  Start(Times(60, 60));
  monitor_->OnSubmit();
  monitor_->OnResult();
  monitor_->OnResult();
  monitor_->OnEnd(1);
  Live(milliseconds(300), {0});
  EXPECT_EQ(lost_.get_future().wait_for(seconds(0)), std::future_status::timeout);
}

}  // namespace
}  // namespace longspan::runtime
