#include "plan/token_split.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Rows = std::vector<std::vector<int32_t>>;

constexpr TokenSplit kSplits[] = {TokenSplit::kInterleave, TokenSplit::kZigzag};

Rows Split(const std::vector<SliceRows>& slices, TokenSplit split, int ranks) {
  return SplitRows(slices, split, ranks);
}

std::vector<int32_t> Concatenated(const Rows& rows) {
  std::vector<int32_t> all;
  for (const auto& of_rank : rows) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return all;
}

// Every row once, ascending at its rank, and no rank above the bound.
void ExpectDealt(const std::vector<SliceRows>& slices, TokenSplit split, int ranks) {
  int64_t total = 0;
  for (const SliceRows& slice : slices) total += slice.rows;
  const Rows rows = Split(slices, split, ranks);
  ASSERT_EQ(rows.size(), static_cast<size_t>(ranks));
  for (const auto& of_rank : rows) {
    ASSERT_TRUE(std::is_sorted(of_rank.begin(), of_rank.end()));
    ASSERT_LE(static_cast<int64_t>(of_rank.size()), MostRowsOfRank(total, split, ranks))
        << total << " rows, " << ranks << " ranks";
  }
  std::vector<int32_t> all = Concatenated(rows);
  std::sort(all.begin(), all.end());
  std::vector<int32_t> want(static_cast<size_t>(total));
  std::iota(want.begin(), want.end(), 0);
  ASSERT_EQ(all, want);
}

TEST(TokenSplitTest, OneRankHasAllRowsInOrder) {
  for (const TokenSplit split : kSplits)
    EXPECT_THAT(Split({{7, 3}, {0, 1}}, split, 1), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(TokenSplitTest, InterleaveDealsRowByRow) {
  EXPECT_THAT(Split({{100, 7}}, TokenSplit::kInterleave, 3),
              ElementsAre(ElementsAre(0, 3, 6), ElementsAre(1, 4), ElementsAre(2, 5)));
}

TEST(TokenSplitTest, ZigzagDealsBlocksFromBothEnds) {
  // Blocks of 5, 5, 5, 4.
  EXPECT_THAT(Split({{0, 19}}, TokenSplit::kZigzag, 2),
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 15, 16, 17, 18),
                          ElementsAre(5, 6, 7, 8, 9, 10, 11, 12, 13, 14)));
  // Blocks of 3, 3, 3, and 2 five times.
  const Rows four = Split({{100, 19}}, TokenSplit::kZigzag, 4);
  EXPECT_THAT(four[0], ElementsAre(0, 1, 2, 17, 18));
  EXPECT_THAT(four[3], ElementsAre(9, 10, 11, 12));
}

TEST(TokenSplitTest, ShortSlicesStayWhole) {
  EXPECT_THAT(Split({{5, 3}}, TokenSplit::kInterleave, 4),
              ElementsAre(ElementsAre(0, 1, 2), IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_THAT(Split({{5, 7}}, TokenSplit::kZigzag, 4)[0], ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

TEST(TokenSplitTest, DecodingRowsAreSharedOut) {
  std::vector<SliceRows> decodes;
  for (int64_t i = 0; i < 10; ++i) decodes.push_back({1000 * i, 1});
  for (const TokenSplit split : kSplits) {
    const Rows rows = Split(decodes, split, 4);
    for (const auto& of_rank : rows) EXPECT_GE(of_rank.size(), 2u);
    // The fifth joins the one that attends to the least.
    EXPECT_THAT(rows[0], ElementsAre(0, 4, 8));
  }
}

TEST(TokenSplitTest, AStepOfNothingIsNothing) {
  EXPECT_THAT(Split({}, TokenSplit::kZigzag, 2), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(TokenSplitTest, EveryLengthIsDealtWhole) {
  for (const TokenSplit split : kSplits)
    for (int ranks = 1; ranks <= 9; ++ranks)
      for (int64_t rows = 0; rows <= 80; ++rows) ExpectDealt({{3, rows}}, split, ranks);
}

TEST(TokenSplitTest, EveryMixIsDealtWholeAndEvenly) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    std::vector<SliceRows> slices(static_cast<size_t>(below(40)));
    const uint32_t longest = round % 3 == 0 ? 4 : round % 3 == 1 ? 20 : 200;
    for (SliceRows& slice : slices) slice = {below(5000), 1 + below(longest)};
    for (const TokenSplit split : kSplits) ExpectDealt(slices, split, 1 + round % 8);
  }
}

// The largest share of a rank in the attention of all, over the even one.
double Imbalance(TokenSplit split, int ranks, int64_t length, int64_t chunk) {
  std::vector<double> work(static_cast<size_t>(ranks));
  for (int64_t begin = 0; begin < length; begin += chunk) {
    const SliceRows slice = {begin, std::min(chunk, length - begin)};
    const Rows rows = Split({slice}, split, ranks);
    for (size_t rank = 0; rank < rows.size(); ++rank)
      for (const int32_t row : rows[rank]) work[rank] += static_cast<double>(begin + row + 1);
  }
  const double mean = std::accumulate(work.begin(), work.end(), 0.0) / ranks;
  return *std::max_element(work.begin(), work.end()) / mean - 1;
}

TEST(TokenSplitTest, AttentionIsBalanced) {
  for (const int ranks : {2, 3, 4, 8}) {
    EXPECT_LT(Imbalance(TokenSplit::kInterleave, ranks, 16384, 2048), 0.01) << ranks;
    EXPECT_LT(Imbalance(TokenSplit::kZigzag, ranks, 16384, 2048), 0.03) << ranks;
    EXPECT_LT(Imbalance(TokenSplit::kInterleave, ranks, 16389, 333), 0.01) << ranks;
    EXPECT_LT(Imbalance(TokenSplit::kZigzag, ranks, 16389, 333), 0.03) << ranks;
  }
}

}  // namespace
}  // namespace longspan::plan
