#include <random>
#include <thread>

#include "comm/conformance/transports.h"

namespace longspan::comm {
namespace {

using std::chrono::milliseconds;

class LinkClosingTest : public testing::TestWithParam<Transport> {
 protected:
  LinkPair Make() { return GetParam().make_links(); }
};
INSTANTIATE_TEST_SUITE_P(All, LinkClosingTest, testing::ValuesIn(LinkTransports()), TransportName);

// A send and a receive that the peer does not answer.
struct Unanswered {
  explicit Unanswered(Link& link)
      : data(1 << 20),
        buffer(1 << 20),
        send(link.Send(1, data)),
        receive(link.Receive(2, buffer)) {}

  Bytes data, buffer;
  Transfer send, receive;
};

void ExpectUnavailable(const Transfer& transfer) {
  const base::Status status = transfer.WaitFor(kAtOnce);
  EXPECT_EQ(status.code(), base::StatusCode::kUnavailable) << status.message();
  EXPECT_NE(status.message(), "");
}

TEST_P(LinkClosingTest, CloseEndsWhatIsPendingHereBeforeItReturns) {
  auto [here, there] = Make();
  Unanswered pending(*here);
  std::this_thread::sleep_for(milliseconds(5));
  here->Close();
  EXPECT_TRUE(pending.send.done());
  EXPECT_TRUE(pending.receive.done());
  ExpectUnavailable(pending.send);
  ExpectUnavailable(pending.receive);
  here->Close();
}

TEST_P(LinkClosingTest, DestructionEndsWhatIsPendingHere) {
  auto [here, there] = Make();
  Unanswered pending(*here);
  EXPECT_LT(SecondsOf([&here = here] { here.reset(); }), 1);
  EXPECT_TRUE(pending.send.done());
  EXPECT_TRUE(pending.receive.done());
  ExpectUnavailable(pending.send);
  ExpectUnavailable(pending.receive);
}

TEST_P(LinkClosingTest, ClosingThereWakesEveryoneHere) {
  auto [here, there] = Make();
  Unanswered pending(*here);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { ExpectUnavailable(pending.send); });
    waiters.emplace_back([&] { ExpectUnavailable(pending.receive); });
  }
  std::this_thread::sleep_for(milliseconds(10));
  there->Close();
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_P(LinkClosingTest, DestroyingThePeerWakesEveryoneHere) {
  auto [here, there] = Make();
  Unanswered pending(*here);
  there.reset();
  ExpectUnavailable(pending.send);
  ExpectUnavailable(pending.receive);
}

TEST_P(LinkClosingTest, NothingBeginsAfterTheEnd) {
  auto [here, there] = Make();
  there->Close();
  Bytes bytes(10);
  for (Link* end : {there.get(), here.get()}) {
    ExpectUnavailable(end->Send(1, bytes));
    ExpectUnavailable(end->Receive(1, bytes));
  }
}

TEST_P(LinkClosingTest, WhatArrivedBeforeTheCloseStays) {
  auto [here, there] = Make();
  const Bytes data = Pattern(3, 50000);
  Bytes buffer(data.size());
  Transfer receive = here->Receive(3, buffer);
  ASSERT_TRUE(there->Send(3, data).Wait().ok());
  there->Close();
  ASSERT_TRUE(receive.Wait().ok());
  EXPECT_EQ(buffer, data);
}

// The buffers are freed as soon as the ends are closed: the address sanitizer sees a late use.
TEST_P(LinkClosingTest, NoBufferIsUsedAfterTheClose) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    auto [first, second] = Make();
    auto traffic = [](Link& link) {
      std::vector<Bytes> buffers;
      std::vector<Transfer> transfers;
      for (uint64_t i = 0; i < 8; ++i) {
        transfers.push_back(link.Receive(i, buffers.emplace_back(256 << 10)));
        transfers.push_back(link.Send(i, buffers.emplace_back(256 << 10)));
      }
      return std::pair(std::move(buffers), std::move(transfers));
    };
    auto close = [&](Link& link, uint64_t microseconds) {
      auto [buffers, transfers] = traffic(link);
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      link.Close();
      for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.done());
    };
    std::thread other(close, std::ref(*second), random() % 2000);
    close(*first, random() % 2000);
    other.join();
  }
}

}  // namespace
}  // namespace longspan::comm
