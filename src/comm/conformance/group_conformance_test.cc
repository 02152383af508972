#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tuple>

#include <gmock/gmock.h>

#include "comm/conformance/rank_threads.h"

namespace longspan::comm {
namespace {

using tensor::Bf16;

class GroupTest : public testing::TestWithParam<std::tuple<Transport, int>> {
 protected:
  static RankThreads Make() {
    const auto& [transport, size] = GetParam();
    return RankThreads(transport, size);
  }
};
// On a device where there is none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupTest);
INSTANTIATE_TEST_SUITE_P(All, GroupTest,
                         testing::Combine(testing::ValuesIn(GroupTransports()),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& param) {
                           return fmt::format("{}{}", std::get<0>(param.param).name,
                                              std::get<1>(param.param));
                         });

// Some numbers of a rank, of very different sizes, so that another order of summation shows.
std::vector<float> NumbersOf(int rank, int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const auto scale = static_cast<float>(1 << ((i + 3 * rank) % 23));
    numbers.push_back(scale * std::sin(static_cast<float>(i + 1000 * rank)));
  }
  return numbers;
}

std::vector<float> SumOfAll(int ranks, int64_t count) {
  std::vector<float> sum = NumbersOf(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> more = NumbersOf(rank, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return sum;
}

std::vector<Bf16> Rounded(const std::vector<float>& values) {
  std::vector<Bf16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), tensor::ToBf16);
  return rounded;
}

std::vector<Bf16> RoundedSumOfAll(int ranks, int64_t count) {
  std::vector<float> sum(static_cast<size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<Bf16> more = Rounded(NumbersOf(rank, count));
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] = rank == 0 ? tensor::ToFloat(more[i]) : sum[i] + tensor::ToFloat(more[i]);
  }
  return Rounded(sum);
}

template <typename Element>
tensor::View ViewOf(std::vector<Element>& values) {
  return {values.data(), tensor::DTypeOf<Element>::kValue, {static_cast<int64_t>(values.size())}};
}

// From none to what takes two steps.
const std::vector<int64_t> kCounts = {0, 1, 2, 3, 1000, 8192, 8193, 100003};

TEST_P(GroupTest, AllReduceSumsInTheOrderOfTheRanks) {
  auto ranks = Make();
  for (const int64_t count : kCounts) {
    const std::vector<float> want = SumOfAll(ranks.size(), count);
    const std::vector<Bf16> want_rounded = RoundedSumOfAll(ranks.size(), count);
    ranks.Run([&](RankGroup& group) {
      std::vector<float> numbers = NumbersOf(group.rank(), count);
      std::vector<Bf16> rounded = Rounded(numbers);
      Collective first = group.AllReduce(ViewOf(numbers));
      Collective second = group.AllReduce(ViewOf(rounded));
      EXPECT_TRUE(first.Wait().ok());
      EXPECT_TRUE(second.Wait().ok());
      EXPECT_TRUE(numbers == want) << count;
      EXPECT_TRUE(rounded == want_rounded) << count;
    });
  }
}

TEST_P(GroupTest, ReduceScatterGivesEveryRankItsBlock) {
  auto ranks = Make();
  for (const int64_t scale : {1, 700, 20000}) {
    // Uneven, and the first has none.
    std::vector<int64_t> counts;
    for (int rank = 0; rank < ranks.size(); ++rank) counts.push_back(rank * scale);
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const std::vector<float> want = SumOfAll(ranks.size(), all);
    ranks.Run([&](RankGroup& group) {
      std::vector<float> numbers = NumbersOf(group.rank(), all);
      EXPECT_TRUE(group.ReduceScatter(ViewOf(numbers), counts).Wait().ok());
      const auto begin = std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
      const auto end = begin + counts[static_cast<size_t>(group.rank())];
      EXPECT_TRUE(std::equal(numbers.begin() + begin, numbers.begin() + end, want.begin() + begin));
    });
  }
}

TEST_P(GroupTest, AllGatherTakesBlocksOfAnySize) {
  auto ranks = Make();
  for (const size_t scale : {1, 5000, 70000}) {
    std::vector<size_t> sizes;
    Bytes want;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      // The second has none.
      sizes.push_back(rank == 1 ? 0 : scale * static_cast<size_t>(rank + 1));
      const Bytes block = Pattern(static_cast<uint64_t>(rank), sizes.back());
      want.insert(want.end(), block.begin(), block.end());
    }
    ranks.Run([&](RankGroup& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const size_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), size_t{0});
      Bytes all(want.size());
      std::copy_n(want.begin() + static_cast<int64_t>(begin), sizes[rank],
                  all.begin() + static_cast<int64_t>(begin));
      const int64_t before = group.received_bytes();
      EXPECT_TRUE(group.AllGather(all, sizes).Wait().ok());
      EXPECT_TRUE(all == want);
      EXPECT_EQ(group.received_bytes() - before, static_cast<int64_t>(want.size() - sizes[rank]));
    });
  }
}

// What rank `from` has for rank `to`: also nothing, and in the last round all for one.
size_t SizeBetween(int from, int to, int round) {
  if (round == 2) return to == 0 ? 30000 : 0;
  return static_cast<size_t>((from * 3 + to * 5) % 4 * (round == 0 ? 7 : 9000));
}

TEST_P(GroupTest, AllToAllTakesAnySizes) {
  auto ranks = Make();
  for (int round = 0; round < 3; ++round) {
    ranks.Run([&](RankGroup& group) {
      std::vector<Bytes> outgoing, incoming;
      for (int peer = 0; peer < group.size(); ++peer) {
        outgoing.push_back(Pattern(static_cast<uint64_t>(10 * group.rank() + peer),
                                   SizeBetween(group.rank(), peer, round)));
        incoming.emplace_back(SizeBetween(peer, group.rank(), round));
      }
      const std::vector<RankGroup::ConstBytes> from(outgoing.begin(), outgoing.end());
      const std::vector<RankGroup::Bytes> to(incoming.begin(), incoming.end());
      EXPECT_TRUE(group.AllToAll(from, to).Wait().ok());
      for (int peer = 0; peer < group.size(); ++peer)
        EXPECT_EQ(WrongPattern(static_cast<uint64_t>(10 * peer + group.rank()),
                               SizeBetween(peer, group.rank(), round),
                               incoming[static_cast<size_t>(peer)]),
                  "");
    });
  }
}

TEST_P(GroupTest, BroadcastComesFromEveryRoot) {
  auto ranks = Make();
  ranks.Run([&](RankGroup& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t size : {0, 1, 100000}) {
        const auto seed = static_cast<uint64_t>(root);
        Bytes data = root == group.rank() ? Pattern(seed, size) : Bytes(size);
        EXPECT_TRUE(group.Broadcast(root, data).Wait().ok());
        EXPECT_EQ(WrongPattern(seed, size, data), "");
      }
    }
  });
}

// Operations of all kinds are under way at once, and two groups share the links.
TEST_P(GroupTest, ManyGoOnAtOnce) {
  auto ranks = Make();
  constexpr int kRounds = 20;
  constexpr int64_t kCount = 9000;
  const std::vector<float> want = SumOfAll(ranks.size(), kCount);
  const std::vector<std::unique_ptr<RankGroup>> others = ranks.MakeGroups(2);
  ranks.Run([&](RankGroup& group) {
    RankGroup& other = *others[static_cast<size_t>(group.rank())];
    std::vector<std::vector<float>> sums(kRounds, NumbersOf(group.rank(), kCount));
    std::vector<Bytes> sent(kRounds);
    std::vector<Collective> under_way;
    for (int i = 0; i < kRounds; ++i) {
      const int root = i % group.size();
      sent[i] = root == group.rank() ? Pattern(static_cast<uint64_t>(i), 5000) : Bytes(5000);
      under_way.push_back((i % 2 == 0 ? group : other).AllReduce(ViewOf(sums[i])));
      under_way.push_back((i % 3 == 0 ? group : other).Broadcast(root, sent[i]));
    }
    for (Collective& each : under_way) EXPECT_TRUE(each.Wait().ok());
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_TRUE(sums[i] == want);
      EXPECT_EQ(WrongPattern(static_cast<uint64_t>(i), 5000, sent[i]), "");
    }
  });
}

TEST_P(GroupTest, AnAllReduceReceivesTwiceItsShare) {
  auto ranks = Make();
  const int64_t size = ranks.size();
  const int64_t count = 12000 * size;
  ranks.Run([&](RankGroup& group) {
    std::vector<float> numbers = NumbersOf(group.rank(), count);
    EXPECT_TRUE(group.AllReduce(ViewOf(numbers)).Wait().ok());
    EXPECT_EQ(group.received_bytes(), 2 * 4 * count * (size - 1) / size);
  });
}

}  // namespace
}  // namespace longspan::comm
