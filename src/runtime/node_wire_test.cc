#include "runtime/node_wire.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::runtime {
namespace {

using base::StatusCode;
using ::testing::ElementsAre;

TEST(SpreadStagesTest, TheFirstNodesGetOneMore) {
  EXPECT_THAT(SpreadStages(4, 1), ElementsAre(StageShare{0, 4}));
  EXPECT_THAT(SpreadStages(4, 2), ElementsAre(StageShare{0, 2}, StageShare{2, 4}));
  EXPECT_THAT(SpreadStages(5, 3),
              ElementsAre(StageShare{0, 2}, StageShare{2, 4}, StageShare{4, 5}));
  EXPECT_THAT(SpreadStages(3, 3),
              ElementsAre(StageShare{0, 1}, StageShare{1, 2}, StageShare{2, 3}));
}

TEST(NodeLaunchTest, IsWhatWasSent) {
  const NodeLaunch launch = {7, 5, 4, true, {"10.0.0.1:5000", "[::1]:80"}};
  EXPECT_EQ(DecodeLaunch(EncodeLaunch(launch)).value(), launch);
}

TEST(NodeLaunchTest, BrokenOnesAreRefused) {
  EXPECT_EQ(DecodeLaunch(EncodeLaunch({7, 5, 1, false, {}})).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(DecodeLaunch(EncodeLaunch({7, 1, 1, false, {"a", "b"}})).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(DecodeLaunch(EncodeLaunch({7, 5, 1 << 30, false, {"a"}})).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(DecodeLaunch(EncodeRunOver()).status().code(), StatusCode::kDataLoss);
  const Frame good = EncodeLaunch({7, 5, 1, false, {"10.0.0.1:5000", "[::1]:80"}});
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(DecodeLaunch(std::span(good).first(size)).ok()) << size;
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    Frame spoilt = good;
    for (uint64_t i = 0; i <= random() % 3; ++i)
      spoilt[random() % spoilt.size()] = std::byte(random() % 256);
    if (const auto launch = DecodeLaunch(spoilt); launch.ok()) {
      EXPECT_FALSE(launch->addresses.empty());
    }
  }
}

TEST(NodeLineTest, TellsWhatItIsFor) {
  for (const NodeLine& line :
       {NodeLine{1, NodeLine::Kind::kControl, 3, 1}, NodeLine{2, NodeLine::Kind::kResidual, 1},
        NodeLine{3, NodeLine::Kind::kTokens, 0}}) {
    EXPECT_EQ(NodeLine::Parse(line.ToString()).value(), line);
  }
  EXPECT_EQ((NodeLine{2, NodeLine::Kind::kResidual, 1, 3}.ToString()), "launch 2 residual 1 3");
  for (const char* text :
       {"", "launch", "launch 1 control", "launch 1 phone 2 0", "launch x control 2 0",
        "launch 1 control 2", "launch 1 control 2 3 4", "join 1 a:2"})
    EXPECT_EQ(NodeLine::Parse(text).status().code(), StatusCode::kDataLoss) << text;
}

}  // namespace
}  // namespace longspan::runtime
