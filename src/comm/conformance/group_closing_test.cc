#include <atomic>
#include <functional>

#include <gmock/gmock.h>

#include "comm/conformance/rank_threads.h"
#include "comm/fault/fault.h"

namespace longspan::comm {
namespace {

using base::StatusCode;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
// The one that fails.
constexpr int kVictim = 2;

class GroupClosingTest : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(All, GroupClosingTest, testing::ValuesIn(LinkTransports()), TransportName);

// An operation in which every rank needs something of every other, with its buffers.
struct Operation {
  explicit Operation(RankGroup& group, int kind) : numbers(20000, 1.0f) {
    const tensor::View view(numbers.data(), tensor::DType::kF32,
                            {static_cast<int64_t>(numbers.size())});
    const RankGroup::Bytes bytes = std::as_writable_bytes(std::span(numbers));
    const std::vector<size_t> sizes(kRanks, bytes.size() / kRanks);
    const std::vector<int64_t> counts(kRanks, view.elements() / kRanks);
    std::vector<RankGroup::ConstBytes> outgoing;
    std::vector<RankGroup::Bytes> incoming;
    for (size_t peer = 0; peer < kRanks; ++peer) {
      incoming.push_back(bytes.subspan(peer * 4000, 4000));
      outgoing.push_back(bytes.subspan(40000 + peer * 4000, 4000));
    }
    switch (kind) {
      case 0:
        pending = group.AllReduce(view);
        break;
      case 1:
        pending = group.AllGather(bytes, sizes);
        break;
      case 2:
        pending = group.ReduceScatter(view, counts);
        break;
      default:
        pending = group.AllToAll(outgoing, incoming);
    }
  }

  std::vector<float> numbers;
  Collective pending;
};
constexpr int kKinds = 4;

void ExpectUnavailableSoon(Collective& pending) {
  base::Status status;
  EXPECT_LT(SecondsOf([&] { status = pending.Wait(); }), 1);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.message();
  EXPECT_NE(status.message(), "");
}

TEST_P(GroupClosingTest, ADeadRankEndsEveryonesWait) {
  for (int kind = 0; kind < kKinds; ++kind) {
    RankThreads ranks(GetParam(), kRanks);
    std::atomic<int> waiting = 0;
    ranks.Run([&](RankGroup& group) {
      if (group.rank() == kVictim) {
        while (waiting < kRanks - 1) std::this_thread::yield();
        std::this_thread::sleep_for(milliseconds(5));
        return ranks.Die(kVictim);
      }
      Operation operation(group, kind);
      ++waiting;
      ExpectUnavailableSoon(operation.pending);
    });
  }
}

// The one that gives up on a silent rank ends the wait of all.
TEST_P(GroupClosingTest, ClosingEndsTheWaitForASilentRank) {
  for (int kind = 0; kind < kKinds; ++kind) {
    RankThreads ranks(GetParam(), kRanks);
    ranks.Run([&](RankGroup& group) {
      if (group.rank() == kVictim) return;
      Operation operation(group, kind);
      std::thread watch;
      if (group.rank() == 0) {
        watch = std::thread([&] {
          std::this_thread::sleep_for(milliseconds(20));
          group.Close();
        });
      }
      ExpectUnavailableSoon(operation.pending);
      if (watch.joinable()) watch.join();
    });
  }
}

TEST_P(GroupClosingTest, NothingBeginsAfterTheEnd) {
  RankThreads ranks(GetParam(), kRanks);
  ranks.group(kVictim).Close();
  for (int rank = 0; rank < kRanks; ++rank) {
    Operation operation(ranks.group(rank), 0);
    ExpectUnavailableSoon(operation.pending);
  }
}

TEST_P(GroupClosingTest, AnOtherSizeIsFoundAndEndsTheGroup) {
  RankThreads ranks(GetParam(), kRanks);
  std::atomic<int> data_losses = 0;
  ranks.Run([&](RankGroup& group) {
    std::vector<float> numbers(group.rank() == kVictim ? 999 : 1000, 1.0f);
    const base::Status status =
        group
            .AllReduce(
                {numbers.data(), tensor::DType::kF32, {static_cast<int64_t>(numbers.size())}})
            .Wait();
    EXPECT_FALSE(status.ok());
    if (status.code() == StatusCode::kDataLoss) ++data_losses;
  });
  EXPECT_GE(data_losses, 1);
}

// The destructor of what nobody waited for waits itself: no buffer is used after it.
TEST_P(GroupClosingTest, NoBufferIsUsedAfterTheEnd) {
  for (int round = 0; round < 10; ++round) {
    RankThreads ranks(GetParam(), kRanks);
    ranks.Run([&](RankGroup& group) {
      std::vector<std::unique_ptr<Operation>> operations;
      for (int kind = 0; kind < kKinds; ++kind)
        operations.push_back(std::make_unique<Operation>(group, kind));
      if (group.rank() == round % kRanks) ranks.Die(group.rank());
      operations.clear();
    });
  }
}

class FaultyGroupTest : public testing::TestWithParam<Transport> {
 protected:
  // Rank kVictim's end towards rank 0 misbehaves; gives how the operation ended at each rank.
  static std::vector<base::Status> Run(const FaultPlan& plan, int kind,
                                       const std::function<void(RankThreads&)>& meanwhile = {}) {
    RankThreads ranks(GetParam(), kRanks, [&](int from, int to, std::unique_ptr<Link> end) {
      return from == kVictim && to == 0 ? CreateFaultInjectingLink(std::move(end), plan)
                                        : std::move(end);
    });
    std::vector<base::Status> ends(kRanks);
    std::thread other;
    if (meanwhile) other = std::thread([&] { meanwhile(ranks); });
    ranks.Run([&](RankGroup& group) {
      for (int i = 0; i < 3; ++i) {
        Operation operation(group, kind);
        base::Status status = operation.pending.Wait();
        if (!status.ok()) {
          ends[static_cast<size_t>(group.rank())] = std::move(status);
          return;
        }
      }
    });
    if (other.joinable()) other.join();
    return ends;
  }
};
INSTANTIATE_TEST_SUITE_P(All, FaultyGroupTest, testing::ValuesIn(LinkTransports()), TransportName);

TEST_P(FaultyGroupTest, AKilledRankReachesAll) {
  for (int kind = 0; kind < kKinds; ++kind)
    for (const base::Status& end : Run({.kill_at = 1}, kind))
      EXPECT_EQ(end.code(), StatusCode::kUnavailable) << end.message();
}

TEST_P(FaultyGroupTest, ATruncatedMessageReachesAll) {
  for (int kind = 0; kind < kKinds; ++kind) {
    const auto ends = Run({.truncate = {1}}, kind);
    // Either of the two may hear of the other's end first.
    EXPECT_TRUE(ends[0].code() == StatusCode::kDataLoss ||
                ends[kVictim].code() == StatusCode::kDataLoss);
    for (const base::Status& end : ends) EXPECT_FALSE(end.ok());
  }
}

TEST_P(FaultyGroupTest, ALostMessageIsWaitedForUntilSomebodyCloses) {
  for (int kind = 0; kind < kKinds; ++kind) {
    const auto ends = Run({.drop = {1}}, kind, [](RankThreads& ranks) {
      std::this_thread::sleep_for(milliseconds(50));
      ranks.Die(0);
    });
    for (const base::Status& end : ends) EXPECT_FALSE(end.ok());
  }
}

TEST_P(FaultyGroupTest, ADelayChangesNothing) {
  for (int kind = 0; kind < kKinds; ++kind)
    for (const base::Status& end : Run({.delay = milliseconds(2)}, kind))
      EXPECT_TRUE(end.ok()) << end.message();
}

}  // namespace
}  // namespace longspan::comm
