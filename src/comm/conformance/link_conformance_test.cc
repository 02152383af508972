#include <algorithm>
#include <atomic>
#include <ctime>
#include <numeric>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "comm/conformance/transports.h"

namespace longspan::comm {
namespace {

using std::chrono::milliseconds;

class LinkTest : public testing::TestWithParam<Transport> {
 protected:
  LinkPair Make() { return GetParam().make_links(); }
};
INSTANTIATE_TEST_SUITE_P(All, LinkTest, testing::ValuesIn(LinkTransports()), TransportName);

const std::vector<size_t> kSizes = {0, 1, 64, 4095, 16384, 16385, 1 << 20, 4 << 20, 3};

TEST_P(LinkTest, FillsBuffersThatWerePostedBefore) {
  auto [here, there] = Make();
  for (size_t i = 0; i < kSizes.size(); ++i) {
    Bytes buffer(kSizes[i]);
    Transfer receive = there->Receive(i, buffer);
    EXPECT_FALSE(receive.done());
    const Bytes data = Pattern(i, kSizes[i]);
    Transfer send = here->Send(i, data);
    ASSERT_TRUE(receive.Wait().ok());
    ASSERT_TRUE(send.Wait().ok());
    EXPECT_TRUE(send.done() && receive.done());
    EXPECT_EQ(WrongPattern(i, kSizes[i], buffer), "");
  }
}

TEST_P(LinkTest, KeepsMessagesForBuffersThatArePostedLater) {
  auto [here, there] = Make();
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const Bytes data = Pattern(i, kSizes[i]);
    Transfer send = here->Send(i, data);
    std::this_thread::sleep_for(milliseconds(5));
    Bytes buffer(kSizes[i]);
    ASSERT_TRUE(there->Receive(i, buffer).Wait().ok());
    ASSERT_TRUE(send.Wait().ok());
    EXPECT_EQ(WrongPattern(i, kSizes[i], buffer), "");
  }
}

TEST_P(LinkTest, SendDoesNotWaitForTheReceiver) {
  auto [here, there] = Make();
  const Bytes large = Pattern(1, GetParam().large);
  Transfer send;
  EXPECT_LT(SecondsOf([&, &here = here] { send = here->Send(1, large); }), 1);
  EXPECT_EQ(send.WaitFor(milliseconds(20)).code(), base::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(send.done());
  // What nobody has a buffer for yet holds up no other message.
  const Bytes small = Pattern(2, 1000);
  Bytes small_buffer(small.size());
  Transfer second = here->Send(2, small);
  ASSERT_TRUE(there->Receive(2, small_buffer).Wait().ok());
  EXPECT_EQ(WrongPattern(2, small.size(), small_buffer), "");
  Bytes buffer(large.size());
  ASSERT_TRUE(there->Receive(1, buffer).Wait().ok());
  ASSERT_TRUE(send.Wait().ok());
  ASSERT_TRUE(second.Wait().ok());
  EXPECT_EQ(WrongPattern(1, large.size(), buffer), "");
}

double ThreadCpuSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Large messages are moved by other threads than the one that posts them, also when the peer has
// posted its buffers already.
TEST_P(LinkTest, PostingALargeMessageCostsNoCopy) {
  if (GetParam().name.ends_with("InProcess")) GTEST_SKIP() << "whoever posts later copies";
  auto [here, there] = Make();
  constexpr size_t kMessages = 8, kBytes = 4 << 20;
  std::vector<Bytes> data(kMessages, Bytes(kBytes)), buffers(kMessages, Bytes(kBytes));
  std::vector<Transfer> transfers;
  double start = ThreadCpuSeconds();
  for (size_t i = 0; i < kMessages; ++i) buffers[i] = data[i];
  const double copying = ThreadCpuSeconds() - start;
  for (size_t i = 0; i < kMessages; ++i) transfers.push_back(there->Receive(i, buffers[i]));
  std::this_thread::sleep_for(milliseconds(10));  // mostly the other end knows by now
  start = ThreadCpuSeconds();
  for (size_t i = 0; i < kMessages; ++i) transfers.push_back(here->Send(i, data[i]));
  const double posting = ThreadCpuSeconds() - start;
  EXPECT_LT(posting, copying / 4);
  for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.Wait().ok());
}

TEST_P(LinkTest, NumbersMeetInAnyOrder) {
  auto [here, there] = Make();
  constexpr size_t kMessages = 50;
  std::vector<Bytes> data(kMessages);
  std::vector<Transfer> sends(kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    data[i] = Pattern(i, 100 * i);
    sends[i] = here->Send(i, data[i]);
  }
  for (size_t i = kMessages; i-- > 0;) {
    Bytes buffer(100 * i);
    ASSERT_TRUE(there->Receive(i, buffer).Wait().ok());
    EXPECT_EQ(WrongPattern(i, 100 * i, buffer), "");
  }
  for (const Transfer& send : sends) EXPECT_TRUE(send.Wait().ok());
}

TEST_P(LinkTest, DirectionsHaveTheirOwnNumbers) {
  auto [here, there] = Make();
  const Bytes to_there = Pattern(1, 5000), to_here = Pattern(2, 7000);
  Bytes there_got(5000), here_got(7000);
  std::vector<Transfer> transfers = {here->Receive(9, here_got), there->Receive(9, there_got),
                                     here->Send(9, to_there), there->Send(9, to_here)};
  for (const Transfer& transfer : transfers) ASSERT_TRUE(transfer.Wait().ok());
  EXPECT_EQ(there_got, to_there);
  EXPECT_EQ(here_got, to_here);
}

TEST_P(LinkTest, ANumberMayBeUsedAgainWhenItIsDone) {
  auto [here, there] = Make();
  for (uint64_t i = 0; i < 100; ++i) {
    const Bytes data = Pattern(i, 300);
    Bytes buffer(300);
    Transfer receive = there->Receive(4, buffer);
    ASSERT_TRUE(here->Send(4, data).Wait().ok());
    ASSERT_TRUE(receive.Wait().ok());
    ASSERT_EQ(WrongPattern(i, 300, buffer), "");
  }
}

TEST_P(LinkTest, AWrongSizeIsNamedOnBothSidesAndTheLinkGoesOn) {
  auto [here, there] = Make();
  for (bool send_first : {true, false}) {
    const Bytes data = Pattern(1, 100);
    Bytes buffer(200);
    Transfer send, receive;
    if (send_first) send = here->Send(7, data);
    receive = there->Receive(7, buffer);
    if (!send_first) send = here->Send(7, data);
    for (const Transfer& transfer : {send, receive}) {
      const base::Status status = transfer.Wait();
      EXPECT_EQ(status.code(), base::StatusCode::kDataLoss);
      EXPECT_THAT(status.message(), testing::HasSubstr("message 7 has 100 bytes"));
      EXPECT_THAT(status.message(), testing::HasSubstr("200"));
    }
  }
  const Bytes data = Pattern(2, 10);
  Bytes buffer(10);
  Transfer send = here->Send(8, data);
  ASSERT_TRUE(there->Receive(8, buffer).Wait().ok());
  ASSERT_TRUE(send.Wait().ok());
  EXPECT_EQ(buffer, data);
}

using LinkDeathTest = LinkTest;
INSTANTIATE_TEST_SUITE_P(All, LinkDeathTest, testing::ValuesIn(LinkTransports()), TransportName);

TEST_P(LinkDeathTest, PostingAPendingNumberIsAProgrammersMistake) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        const LinkPair ends = Make();
        Bytes buffer(10);
        ends.first->Receive(3, buffer);
        ends.first->Receive(3, buffer);
      },
      "message 3 is posted while one of this number is pending");
}

// One side of the soak: posts `kMessages` sends or receives, at most 40 at a time, in an order
// shuffled within windows of 20.
constexpr uint64_t kMessages = 2500;

std::vector<uint64_t> ShuffledNumbers(uint64_t seed) {
  std::vector<uint64_t> numbers(kMessages);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::mt19937_64 random(seed);
  for (size_t begin = 0; begin < kMessages; begin += 20)
    std::shuffle(numbers.begin() + begin, numbers.begin() + begin + 20, random);
  return numbers;
}

template <typename PostFunction, typename CheckFunction>
int RunSide(uint64_t seed, PostFunction post, CheckFunction check) {
  const std::vector<uint64_t> numbers = ShuffledNumbers(seed);
  std::vector<Bytes> buffers(kMessages);
  std::vector<Transfer> transfers(kMessages);
  int wrong = 0;
  auto finish = [&](size_t i) {
    if (!transfers[i].Wait().ok() || !check(numbers[i], buffers[i])) ++wrong;
    buffers[i] = {};
  };
  for (size_t i = 0; i < kMessages; ++i) {
    if (i >= 40) finish(i - 40);
    transfers[i] = post(numbers[i], buffers[i]);
  }
  for (size_t i = kMessages - 40; i < kMessages; ++i) finish(i);
  return wrong;
}

int SendAll(Link& link, uint64_t direction) {
  return RunSide(
      direction,
      [&](uint64_t number, Bytes& buffer) {
        buffer = Pattern(direction + number, RandomSize(number));
        return link.Send(number, buffer);
      },
      [](uint64_t, const Bytes&) { return true; });
}

int ReceiveAll(Link& link, uint64_t direction) {
  return RunSide(
      direction + 1,
      [&](uint64_t number, Bytes& buffer) {
        buffer.resize(RandomSize(number));
        return link.Receive(number, buffer);
      },
      [&](uint64_t number, const Bytes& buffer) {
        return WrongPattern(direction + number, RandomSize(number), buffer).empty();
      });
}

TEST_P(LinkTest, ManyMessagesBothWaysOnTwoLinksArriveWhole) {
  auto first = Make(), second = Make();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (LinkPair* pair : {&first, &second}) {
    threads.emplace_back([&, pair] { wrong += SendAll(*pair->first, 0); });
    threads.emplace_back([&, pair] { wrong += SendAll(*pair->second, 1u << 20); });
    threads.emplace_back([&, pair] { wrong += ReceiveAll(*pair->second, 0); });
    threads.emplace_back([&, pair] { wrong += ReceiveAll(*pair->first, 1u << 20); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace longspan::comm
