#include "apps/counters_json.h"

#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

TEST(CountersJsonTest, TellsSecondsAndMilliseconds) {
  engine::Counters counters;
  counters.plans = 4;
  counters.active = 2'000'000'000;
  counters.leader_work = 100'000;
  for (int i = 0; i < 4; ++i) counters.plan_latency.Add(3'000'000);
  counters.ranks.push_back({.kernels = 1'500'000'000, .bubble = 500'000'000, .sent_bytes = 77});
  const auto json = ToJson(counters);
  EXPECT_EQ(json["plans"], 4);
  EXPECT_DOUBLE_EQ(json["active_s"], 2);
  EXPECT_DOUBLE_EQ(json["leader_us_per_plan"], 25);
  EXPECT_DOUBLE_EQ(json["plan_latency_ms"]["mean"], 3);
  EXPECT_DOUBLE_EQ(json["ranks"][0]["kernels_s"], 1.5);
  EXPECT_DOUBLE_EQ(json["ranks"][0]["bubble_s"], 0.5);
  EXPECT_EQ(json["ranks"][0]["sent_bytes"], 77);
}

TEST(CountersJsonTest, IsDefinedBeforeTheFirstPlan) {
  const auto json = ToJson(engine::Counters());
  EXPECT_DOUBLE_EQ(json["plan_latency_ms"]["mean"], 0);
  EXPECT_DOUBLE_EQ(json["leader_us_per_plan"], 0);
}

}  // namespace
}  // namespace longspan::apps
