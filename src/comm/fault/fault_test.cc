#include "comm/fault/fault.h"

#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process/in_process.h"

namespace longspan::comm {
namespace {

using base::StatusCode;
using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;
using testing::ElementsAre;

Bytes Message(int number, size_t size = 8) { return Bytes(size, static_cast<std::byte>(number)); }

ChannelPair FaultyChannels(const FaultPlan& plan) {
  auto [first, second] = CreateInProcessChannelPair();
  return {CreateFaultInjectingChannel(std::move(first), plan), std::move(second)};
}

LinkPair FaultyLinks(const FaultPlan& plan) {
  auto [first, second] = CreateInProcessLinkPair();
  return {CreateFaultInjectingLink(std::move(first), plan), std::move(second)};
}

// Sends messages 0 to 4 and gives (number, size) of all that arrives.
std::vector<std::pair<int, size_t>> ArrivalsOfFive(const FaultPlan& plan) {
  auto [faulty, peer] = FaultyChannels(plan);
  for (int i = 0; i < 5; ++i) (void)faulty->Send(Message(i));
  faulty->Close();  // what is on its way still goes out
  std::vector<std::pair<int, size_t>> arrivals;
  for (;;) {
    auto frame = peer->Receive();
    if (!frame.ok()) return arrivals;
    arrivals.emplace_back(static_cast<int>(frame->at(0)), frame->size());
  }
}

TEST(FaultInjectingChannelTest, DoesWhatThePlanSays) {
  for (const milliseconds delay : {milliseconds(0), milliseconds(2)}) {
    using A = std::pair<int, size_t>;
    EXPECT_THAT(ArrivalsOfFive({.delay = delay}),
                ElementsAre(A(0, 8), A(1, 8), A(2, 8), A(3, 8), A(4, 8)));
    EXPECT_THAT(ArrivalsOfFive({.delay = delay, .drop = {1, 3}}),
                ElementsAre(A(0, 8), A(2, 8), A(4, 8)));
    EXPECT_THAT(ArrivalsOfFive({.delay = delay, .duplicate = {4}}),
                ElementsAre(A(0, 8), A(1, 8), A(2, 8), A(3, 8), A(4, 8), A(4, 8)));
    EXPECT_THAT(ArrivalsOfFive({.delay = delay, .truncate = {0}}),
                ElementsAre(A(0, 4), A(1, 8), A(2, 8), A(3, 8), A(4, 8)));
    EXPECT_THAT(ArrivalsOfFive({.delay = delay, .kill_at = 2}), ElementsAre(A(0, 8), A(1, 8)));
  }
}

TEST(FaultInjectingChannelTest, KillEndsBothSides) {
  auto [faulty, peer] = FaultyChannels({.kill_at = 0});
  EXPECT_EQ(faulty->Send(Message(0)).code(), StatusCode::kUnavailable);
  EXPECT_EQ(faulty->Receive().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(peer->Receive().status().code(), StatusCode::kUnavailable);
}

TEST(FaultInjectingChannelTest, DelayIsALatencyThatMessagesShare) {
  auto [faulty, peer] = FaultyChannels({.delay = milliseconds(50)});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(faulty->Send(Message(i)).ok());
  for (int i = 0; i < 20; ++i) {
    auto frame = peer->Receive();
    ASSERT_TRUE(frame.ok());
    EXPECT_EQ(*frame, Message(i));
  }
  const auto taken = std::chrono::steady_clock::now() - start;
  EXPECT_GE(taken, milliseconds(50));
  EXPECT_LT(taken, 20 * milliseconds(50));
}

TEST(FaultInjectingChannelTest, ClosingDoesNotSitTheDelayOut) {
  auto [faulty, peer] = FaultyChannels({.delay = std::chrono::hours(1)});
  ASSERT_TRUE(faulty->Send(Message(7)).ok());
  faulty->Close();
  auto frame = peer->Receive();
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(*frame, Message(7));
  EXPECT_EQ(faulty->Send(Message(8)).code(), StatusCode::kUnavailable);
}

TEST(FaultInjectingLinkTest, DropIsToldAsSentAndNeverArrives) {
  auto [faulty, peer] = FaultyLinks({.drop = {0}});
  Bytes data = Message(1), buffer(8);
  Transfer receive = peer->Receive(1, buffer);
  EXPECT_TRUE(faulty->Send(1, data).Wait().ok());
  EXPECT_EQ(receive.WaitFor(milliseconds(20)).code(), StatusCode::kDeadlineExceeded);
  peer->Close();
  EXPECT_TRUE(receive.done());
}

TEST(FaultInjectingLinkTest, TruncationIsDataLossOnBothSides) {
  auto [faulty, peer] = FaultyLinks({.truncate = {0}});
  Bytes data = Message(1), buffer(8);
  Transfer receive = peer->Receive(1, buffer);
  EXPECT_EQ(faulty->Send(1, data).Wait().code(), StatusCode::kDataLoss);
  EXPECT_EQ(receive.Wait().code(), StatusCode::kDataLoss);
}

TEST(FaultInjectingLinkTest, ADuplicateWaitsForASecondReceive) {
  for (const milliseconds delay : {milliseconds(0), milliseconds(2)}) {
    auto [faulty, peer] = FaultyLinks({.delay = delay, .duplicate = {0}});
    Bytes buffer(8);
    {
      Bytes data = Message(1);
      Transfer send = faulty->Send(1, data);
      ASSERT_TRUE(peer->Receive(1, buffer).Wait().ok());
      ASSERT_TRUE(send.Wait().ok());
    }
    // Others are not held up.
    Bytes data = Message(2), other(8);
    Transfer receive = peer->Receive(2, other);
    ASSERT_TRUE(faulty->Send(2, data).Wait().ok());
    ASSERT_TRUE(receive.Wait().ok());
    EXPECT_EQ(other, data);
    buffer = Bytes(8);
    ASSERT_TRUE(peer->Receive(1, buffer).Wait().ok());
    EXPECT_EQ(buffer, Message(1));
  }
}

TEST(FaultInjectingLinkTest, KillEndsBothSides) {
  for (const milliseconds delay : {milliseconds(0), milliseconds(2)}) {
    auto [faulty, peer] = FaultyLinks({.delay = delay, .kill_at = 1});
    Bytes data = Message(1), first(8), second(8), third(8);
    std::vector<Transfer> doomed = {peer->Receive(2, second), faulty->Receive(3, third)};
    Transfer receive = peer->Receive(1, first);
    EXPECT_TRUE(faulty->Send(1, data).Wait().ok());
    EXPECT_TRUE(receive.Wait().ok());
    doomed.push_back(faulty->Send(2, data));
    for (const Transfer& transfer : doomed)
      EXPECT_EQ(transfer.WaitFor(std::chrono::seconds(1)).code(), StatusCode::kUnavailable);
  }
}

TEST(FaultInjectingLinkTest, ClosingDoesNotSitTheDelayOut) {
  auto [faulty, peer] = FaultyLinks({.delay = std::chrono::hours(1)});
  Bytes data = Message(1);
  Transfer send = faulty->Send(1, data);
  faulty->Close();
  EXPECT_TRUE(send.done());
  EXPECT_EQ(send.Wait().code(), StatusCode::kUnavailable);
  EXPECT_EQ(faulty->Send(2, data).Wait().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace longspan::comm
