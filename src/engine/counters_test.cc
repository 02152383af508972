#include "engine/counters.h"

#include <gtest/gtest.h>

#include "engine/output.h"

namespace longspan::engine {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(DurationHistogramTest, QuantilesLieInTheirBuckets) {
  DurationHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  for (int i = 0; i < 98; ++i) histogram.Add(3 * kMs);
  histogram.Add(700 * kMs);
  histogram.Add(900 * 1000 * kMs);
  EXPECT_EQ(histogram.count(), 100);
  EXPECT_EQ(histogram.sum(), 98 * 3 * kMs + 700 * kMs + 900 * 1000 * kMs);
  EXPECT_GT(histogram.Quantile(0.5), 2 * kMs);
  EXPECT_LE(histogram.Quantile(0.5), 5 * kMs);
  EXPECT_GT(histogram.Quantile(0.99), 500 * kMs);
  EXPECT_LE(histogram.Quantile(0.99), 1000 * kMs);
  EXPECT_EQ(histogram.Quantile(1), 900'000 * kMs);
}

TEST(DurationHistogramTest, BoundsGrowFromATenthOfAMillisecondTo500Seconds) {
  const auto& bounds = DurationHistogram::bounds();
  EXPECT_EQ(bounds.front(), kMs / 10);
  EXPECT_EQ(bounds.back(), 500'000 * kMs);
  for (size_t i = 1; i < bounds.size(); ++i) EXPECT_LE(bounds[i], bounds[i - 1] * 5 / 2) << i;
}

StepRecord Step(std::vector<plan::StageTiming> stages) {
  return {
      .plan = {1},
      .slices = {{{1}, 0, 64, true}, {{2}, 9, 10, false}},
      .stages = std::move(stages),
      .leader = {.begin = 10, .made = 12, .submitted = 15, .commit_begin = 40, .committed = 47}};
}

TEST(CounterBookTest, WhatIsNotWorkIsBubbleWhilePlansAreInFlight) {
  CounterBook book(2);
  book.SetActive(true, 0);
  plan::StageTiming first{.start = 100, .end = 160, .kernels = 40, .wait = 10, .transfer = 4};
  first.spans = {{plan::SpanKind::kHost, 95, 100},
                 {plan::SpanKind::kKernels, 100, 140},
                 {plan::SpanKind::kHost, 140, 141}};
  first.sends = {{.posted = 150, .bytes = 512}};
  book.Add(Step({first, {.start = 9000, .end = 9050, .kernels = 50}}));
  const Counters during = book.Read(100);
  EXPECT_EQ(during.active, 100);
  EXPECT_EQ(during.plans, 1);
  EXPECT_EQ(during.rows, 65);
  EXPECT_EQ(during.leader_work, 5 + 7);
  EXPECT_EQ(during.plan_latency.sum(), 32);
  EXPECT_EQ(during.ranks[0].host, 6);
  EXPECT_EQ(during.ranks[0].sent_bytes, 512);
  EXPECT_EQ(during.ranks[0].bubble, 100 - 40 - 4 - 6);
  EXPECT_EQ(during.ranks[1].bubble, 50);
  book.SetActive(false, 200);
  book.SetActive(false, 300);
  EXPECT_EQ(book.Read(1000).active, 200) << "an idle engine has no bubble";
  EXPECT_EQ(book.Read(1000).ranks[1].bubble, 150);
  book.SetActive(true, 1000);
  book.SetActive(true, 1005);
  EXPECT_EQ(book.Read(1010).active, 210);
}

}  // namespace
}  // namespace longspan::engine
