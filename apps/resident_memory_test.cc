#include "apps/resident_memory.h"

#include <cstring>

#include <gtest/gtest.h>

#include "tensor/buffer.h"

namespace longspan::apps {
namespace {

TEST(ResidentMemoryTest, ThePeakSeesWhatWasUsedAndForgetsIt) {
  ResetPeakRss();
  const double before = PeakRssMib();
  constexpr int64_t kBytes = 64 << 20;
  {
    const auto block = tensor::AllocateHost(kBytes);
    ASSERT_TRUE(block.ok());
    std::memset(block->data(), 1, kBytes);
  }
  const double with_block = PeakRssMib();
  EXPECT_GE(with_block, before + 60);
  ResetPeakRss();
  EXPECT_LT(PeakRssMib(), with_block - 30);
}

TEST(ResidentMemoryTest, WhatIsResidentNowGoesUpAndDown) {
  constexpr int64_t kBytes = 64 << 20;
  const double before = RssMib();
  {
    const auto block = tensor::AllocateHost(kBytes);
    ASSERT_TRUE(block.ok());
    std::memset(block->data(), 1, kBytes);
    EXPECT_GE(RssMib(), before + 60);
  }
  EXPECT_LT(RssMib(), before + 30);
}

engine::StepRecord Step(int64_t begin, int64_t end, int64_t committed) {
  return {.slices = {{.sequence = {1}, .begin = begin, .end = end, .prefill = true}},
          .leader = {.begin = 1'000'000'000, .committed = committed}};
}

TEST(ResidentMemoryTest, SamplesLieAtEqualPartsOfAPrompt) {
  MemoryCourse course(100, 4, 1 << 20);
  for (int64_t begin = 0; begin < 100; begin += 20)
    course.Add(Step(begin, begin + 20, 2'000'000'000 + begin));
  ASSERT_EQ(course.samples().size(), 4U);
  EXPECT_EQ(course.samples()[0].tokens, 40);
  EXPECT_EQ(course.samples()[1].tokens, 60);
  EXPECT_EQ(course.samples()[2].tokens, 80);
  EXPECT_EQ(course.samples()[3].tokens, 100);
  EXPECT_EQ(course.samples()[3].kv_mib, 100);
  EXPECT_NEAR(course.samples()[0].seconds, 1, 1e-6);
  EXPECT_GT(course.samples()[3].rss_mib, 1);
  EXPECT_EQ(course.samples()[3].rest_mib(), course.samples()[3].rss_mib - 100);
}

TEST(ResidentMemoryTest, NoSamplesAreTakenWhereNoneAreWanted) {
  MemoryCourse course(100, 0, 1);
  course.Add(Step(0, 100, 0));
  EXPECT_TRUE(course.samples().empty());
}

}  // namespace
}  // namespace longspan::apps
