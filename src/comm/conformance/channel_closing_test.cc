#include <atomic>
#include <random>
#include <thread>

#include "comm/conformance/transports.h"

namespace longspan::comm {
namespace {

using std::chrono::milliseconds;

class ChannelClosingTest : public testing::TestWithParam<Transport> {
 protected:
  ChannelPair Make() { return GetParam().make_channels({}); }
};
INSTANTIATE_TEST_SUITE_P(All, ChannelClosingTest, testing::ValuesIn(ChannelTransports()),
                         TransportName);

// Starts threads that wait on an end, and tells how they were woken.
class Waiters {
 public:
  explicit Waiters(Channel& end) {
    for (int i = 0; i < 3; ++i) {
      threads_.emplace_back([&] { Count(end.Receive().status()); });
      threads_.emplace_back([&] { Count(end.ReceiveFor(std::chrono::seconds(60)).status()); });
    }
    std::this_thread::sleep_for(milliseconds(20));  // mostly they wait by now
  }
  ~Waiters() { Join(); }
  void ExpectUnavailableAtOnce() {
    EXPECT_LT(SecondsOf([&] { Join(); }), 1);
    EXPECT_EQ(unavailable_, 6);
  }

 private:
  void Count(const base::Status& status) {
    if (status.code() == base::StatusCode::kUnavailable && !status.message().empty())
      ++unavailable_;
  }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::atomic<int> unavailable_ = 0;
  std::vector<std::thread> threads_;
};

// Sends until it fails, which must be soon.
base::Status SendUntilItFails(Channel& channel) {
  const auto deadline = std::chrono::steady_clock::now() + kAtOnce;
  base::Status status;
  while (status.ok() && std::chrono::steady_clock::now() < deadline) {
    status = channel.Send(Pattern(0, 10));
    std::this_thread::sleep_for(milliseconds(1));
  }
  return status;
}

TEST_P(ChannelClosingTest, ClosingHereWakesEveryoneHere) {
  auto [here, there] = Make();
  Waiters waiters(*here);
  here->Close();
  waiters.ExpectUnavailableAtOnce();
  EXPECT_EQ(here->Send(Pattern(0, 10)).code(), base::StatusCode::kUnavailable);
  EXPECT_EQ(here->Send(Pattern(0, 10)).message(), "this end of the connection was closed");
  here->Close();
}

TEST_P(ChannelClosingTest, ClosingThereWakesEveryoneHere) {
  auto [here, there] = Make();
  Waiters waiters(*here);
  there->Close();
  waiters.ExpectUnavailableAtOnce();
  EXPECT_EQ(here->Receive().status().message(), "the peer closed the connection");
  EXPECT_EQ(SendUntilItFails(*here).code(), base::StatusCode::kUnavailable);
}

TEST_P(ChannelClosingTest, DestroyingThePeerWakesEveryoneHere) {
  auto [here, there] = Make();
  Waiters waiters(*here);
  there.reset();
  waiters.ExpectUnavailableAtOnce();
  EXPECT_EQ(SendUntilItFails(*here).code(), base::StatusCode::kUnavailable);
}

TEST_P(ChannelClosingTest, FramesSentBeforeAGracefulCloseArrive) {
  auto [here, there] = Make();
  for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(there->Send(Pattern(i, i)).ok());
  there->Close();
  for (uint64_t i = 0; i < 100; ++i) {
    auto frame = here->Receive();
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    EXPECT_EQ(WrongPattern(i, i, *frame), "");
  }
  EXPECT_EQ(here->Receive().status().code(), base::StatusCode::kUnavailable);
}

TEST_P(ChannelClosingTest, ClosingHereDropsWhatWasNotReceived) {
  auto [here, there] = Make();
  ASSERT_TRUE(there->Send(Pattern(0, 10)).ok());
  here->Close();
  EXPECT_EQ(here->Receive().status().code(), base::StatusCode::kUnavailable);
}

TEST_P(ChannelClosingTest, DestructionDoesNotWaitForAReader) {
  auto [here, there] = Make();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(here->Send(Bytes(8 << 20)).ok());
  EXPECT_LT(SecondsOf([&here = here] { here.reset(); }), 1);
  EXPECT_LT(SecondsOf([&there = there] { there.reset(); }), 1);
}

TEST_P(ChannelClosingTest, BothEndsMayCloseAtOnceInTheMiddleOfTraffic) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    auto [first, second] = Make();
    std::vector<std::thread> threads;
    for (Channel* end : {first.get(), second.get()}) {
      threads.emplace_back([=] {
        for (uint64_t i = 0;
             end->Send(Bytes(RandomSize(i))).code() != base::StatusCode::kUnavailable; ++i)
          std::this_thread::yield();
      });
      threads.emplace_back([=] {
        while (end->Receive().ok()) {
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    for (Channel* end : {first.get(), second.get()}) threads.emplace_back([=] { end->Close(); });
    EXPECT_LT(SecondsOf([&] {
                for (std::thread& thread : threads) thread.join();
              }),
              5);
  }
}

}  // namespace
}  // namespace longspan::comm
