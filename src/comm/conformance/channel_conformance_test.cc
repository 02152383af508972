#include <atomic>
#include <cstring>
#include <thread>

#include "comm/conformance/transports.h"

namespace longspan::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

class ChannelTest : public testing::TestWithParam<Transport> {
 protected:
  ChannelPair Make(ChannelLimits limits = {}) { return GetParam().make_channels(limits); }
};
INSTANTIATE_TEST_SUITE_P(All, ChannelTest, testing::ValuesIn(ChannelTransports()), TransportName);

TEST_P(ChannelTest, CarriesFramesOfAnySizeInOrder) {
  auto [here, there] = Make();
  const std::vector<size_t> sizes = {0, 1, 64, 0, 4095, 16384, 16385, 1 << 20, 4 << 20, 3};
  for (size_t i = 0; i < sizes.size(); ++i) ASSERT_TRUE(here->Send(Pattern(i, sizes[i])).ok());
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto frame = there->Receive();
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    EXPECT_EQ(WrongPattern(i, sizes[i], *frame), "");
  }
}

TEST_P(ChannelTest, AnswersGoBack) {
  auto [here, there] = Make();
  std::thread echo([&there = there] {
    for (;;) {
      auto frame = there->Receive();
      if (!frame.ok()) return;
      if (!there->Send(std::move(*frame)).ok()) return;
    }
  });
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(here->Send(Pattern(i, 64)).ok());
    auto frame = here->Receive();
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    ASSERT_EQ(WrongPattern(i, 64, *frame), "");
  }
  here->Close();
  echo.join();
}

TEST_P(ChannelTest, KeepsThousandsOfFramesForALateReader) {
  auto [here, there] = Make();
  for (uint64_t i = 0; i < 4000; ++i) ASSERT_TRUE(here->Send(Pattern(i, i % 100)).ok());
  for (uint64_t i = 0; i < 4000; ++i) {
    auto frame = there->Receive();
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    ASSERT_EQ(WrongPattern(i, i % 100, *frame), "");
  }
}

TEST_P(ChannelTest, SendDoesNotWaitForTheReader) {
  auto [here, there] = Make();
  Bytes frame = Pattern(1, GetParam().large);
  EXPECT_LT(SecondsOf([&, &here = here] { EXPECT_TRUE(here->Send(std::move(frame)).ok()); }), 1);
  EXPECT_LT(SecondsOf([&here = here] { EXPECT_TRUE(here->Send(Pattern(2, 8)).ok()); }), 1);
  auto first = there->Receive();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(WrongPattern(1, GetParam().large, *first), "");
}

TEST_P(ChannelTest, ReceiveForGivesUpInTime) {
  auto [here, there] = Make();
  EXPECT_EQ(there->ReceiveFor(nanoseconds(0)).status().code(), base::StatusCode::kDeadlineExceeded);
  const double seconds = SecondsOf([&there = there] {
    EXPECT_EQ(there->ReceiveFor(milliseconds(30)).status().code(),
              base::StatusCode::kDeadlineExceeded);
  });
  EXPECT_GE(seconds, 0.03);
  EXPECT_LT(seconds, 1);
  ASSERT_TRUE(here->Send(Pattern(5, 10)).ok());
  auto frame = there->ReceiveFor(nanoseconds::max());
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  EXPECT_EQ(WrongPattern(5, 10, *frame), "");
}

TEST_P(ChannelTest, RefusesAFrameAboveTheLimitAndGoesOn) {
  if (GetParam().name.starts_with("Delayed")) GTEST_SKIP() << "tells errors later";
  auto [here, there] = Make({.max_frames = 10, .max_bytes = 1000});
  EXPECT_EQ(here->Send(Pattern(0, 1001)).code(), base::StatusCode::kResourceExhausted);
  ASSERT_TRUE(here->Send(Pattern(1, 1000)).ok());
  auto frame = there->Receive();
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(WrongPattern(1, 1000, *frame), "");
}

TEST_P(ChannelTest, RefusesFramesWhenThePeerDoesNotRead) {
  if (GetParam().name.starts_with("Delayed")) GTEST_SKIP() << "keeps them on their way";
  auto [here, there] = Make({.max_frames = 16, .max_bytes = 1 << 20});
  uint64_t taken = 0;
  base::Status status;
  while (taken < 100000 && (status = here->Send(Pattern(taken, 100))).ok()) ++taken;
  EXPECT_EQ(status.code(), base::StatusCode::kResourceExhausted);
  EXPECT_GE(taken, 16u);
  for (uint64_t i = 0; i < taken; ++i) {
    auto frame = there->Receive();
    ASSERT_TRUE(frame.ok());
    ASSERT_EQ(WrongPattern(i, 100, *frame), "");
  }
  EXPECT_TRUE(here->Send(Pattern(0, 100)).ok());
}

// Frames that say who sent them and when, so that receivers can check the order of each sender.
TEST_P(ChannelTest, ManyThreadsBothWays) {
  auto [first, second] = Make();
  constexpr uint64_t kFrames = 1250;  // of each of four senders and both ends: 10,000 in all
  std::atomic<uint64_t> wrong = 0;
  std::atomic<uint64_t> received = 0;
  std::vector<std::thread> threads;
  for (Channel* end : {first.get(), second.get()}) {
    for (uint64_t sender = 0; sender < 4; ++sender)
      threads.emplace_back([=] {
        for (uint64_t i = 0; i < kFrames; ++i) {
          Bytes frame = Pattern(sender * kFrames + i, 16 + RandomSize(i));
          std::memcpy(frame.data(), &sender, 8);
          std::memcpy(frame.data() + 8, &i, 8);
          while (!end->Send(frame).ok()) std::this_thread::sleep_for(milliseconds(1));
        }
      });
    threads.emplace_back([=, &wrong, &received] {
      std::vector<uint64_t> next(4, 0);
      for (uint64_t n = 0; n < 4 * kFrames; ++n) {
        auto frame = end->Receive();
        if (!frame.ok() || frame->size() < 16) return;
        uint64_t sender = 0, i = 0;
        std::memcpy(&sender, frame->data(), 8);
        std::memcpy(&i, frame->data() + 8, 8);
        Bytes expected = Pattern(sender * kFrames + i, 16 + RandomSize(i));
        std::memcpy(expected.data(), frame->data(), 16);
        if (sender >= 4 || next[sender]++ != i || *frame != expected) ++wrong;
        ++received;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(received, 2 * 4 * kFrames);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(ChannelTest, ReceiversShareTheFrames) {
  auto [here, there] = Make();
  std::atomic<int> received = 0;
  std::vector<std::thread> receivers;
  for (int i = 0; i < 3; ++i)
    receivers.emplace_back([&, &there = there] {
      while (there->Receive().ok()) ++received;
    });
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(here->Send(Pattern(1, 50)).ok());
  for (int i = 0; i < 5000 && received < 300; ++i) std::this_thread::sleep_for(milliseconds(1));
  here->Close();
  for (std::thread& receiver : receivers) receiver.join();
  EXPECT_EQ(received, 300);
}

}  // namespace
}  // namespace longspan::comm
