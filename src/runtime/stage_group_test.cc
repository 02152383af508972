#include "runtime/stage_group.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/in_process.h"
#include "runtime/wire.h"

namespace longspan::runtime {
namespace {

class SilentRank : public RankHandle {
 public:
  explicit SilentRank(std::unique_ptr<comm::Channel> channel) : channel_(std::move(channel)) {}
  comm::Channel& channel() override { return *channel_; }
  void RequestEnd() override { channel_->Close(); }
  std::string DescribeEnd() override { return {}; }

 private:
  std::unique_ptr<comm::Channel> channel_;
};

// Ranks that are being brought up, whose ends of the channels the test has.
class BringUpTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  BringUpTest() {
    for (auto& end : ends_) {
      auto [leader, rank] = comm::CreateInProcessChannelPair();
      ranks_.push_back(std::make_unique<SilentRank>(std::move(leader)));
      end = std::move(rank);
    }
  }

  // What a rank that fails does last.
  void Fail(int rank, const base::Status& status) {
    EXPECT_TRUE(ends_[rank]->Send(EncodeFailure(status)).ok());
    ends_[rank]->Close();
  }

  base::Status BringUp() {
    const RankConfig config = {.mesh = {.pp = kRanks},
                               .beat_every_ms = 1000,
                               .peer_timeout_ms = 3600 * 1000,
                               .watchdog_timeout_ms = 3600 * 1000};
    return StageGroup::BringUp(std::move(ranks_), std::vector(kRanks, config), {}).status();
  }

  std::vector<std::unique_ptr<RankHandle>> ranks_;
  std::unique_ptr<comm::Channel> ends_[kRanks];
};

TEST_F(BringUpTest, TheReasonOfTheRankThatFailedFirstIsTold) {
  // Its neighbours lose their links, and may be heard of before.
  Fail(2, base::Unavailable("the peer closed the connection"));
  Fail(1, base::Unavailable("the peer closed the connection"));
  std::thread first([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Fail(0, base::DataLoss("the file is cut off"));
  });
  EXPECT_EQ(BringUp().message(), "the file is cut off");
  first.join();
}

TEST_F(BringUpTest, WhereNoneHasAReasonOfItsOwnTheFirstOneHeardOfIsTold) {
  for (int rank = 0; rank < kRanks; ++rank)
    Fail(rank, base::Unavailable("the peer closed the connection"));
  EXPECT_EQ(BringUp().message(), "the peer closed the connection");
}

}  // namespace
}  // namespace longspan::runtime
