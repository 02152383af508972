#include "apps/exchange_report.h"

#include <gmock/gmock.h>

#include "plan/exchange_volume.h"

namespace longspan::apps {
namespace {

using ::testing::DoubleEq;
using ::testing::HasSubstr;

spec::ModelSpec SomeModel() {
  return {.hidden_size = 1024,
          .moe = {.experts = 8, .experts_per_token = 8},
          .feed_forward = {spec::FeedForwardKind::kDense, spec::FeedForwardKind::kMoe}};
}

TEST(ExchangeReportTest, IsPerTokenAndRankOfAStage) {
  const ExchangeShape shape = {.mesh = {.pp = 3, .tp = 4, .ep = 2}, .element = 2, .step_rows = 512};
  const PipelineReport::Traffic traffic = {.rows = 100,
                                           .boundary_bytes = 4 * 100 * 2 * 2048,
                                           .stage_bytes = {.tensor = 4 * 700, .expert = 4 * 300}};
  const auto volumes = ExchangeVolumes(SomeModel(), shape, traffic);
  ASSERT_EQ(volumes.size(), 3U);
  EXPECT_EQ(volumes[0].axis, "pp");
  EXPECT_EQ(volumes[0].counted, volumes[0].formula);
  EXPECT_EQ(volumes[1].axis, "tp");
  EXPECT_EQ(volumes[1].counted, 7);
  EXPECT_THAT(volumes[1].formula, DoubleEq((2 * 2 + 1) * 2 * 0.75 * 2048));
  EXPECT_EQ(volumes[2].axis, "ep");
  EXPECT_EQ(volumes[2].counted, 3);
  // Every row goes to both ranks: half of them to another one.
  EXPECT_THAT(volumes[2].formula, DoubleEq(0.5 * (2 * 2048 + 64) + 8.0 / 512));
}

TEST(ExchangeReportTest, OneRankHasNothingToTell) {
  const auto volumes = ExchangeVolumes(SomeModel(), {.element = 2, .step_rows = 512}, {});
  EXPECT_TRUE(volumes.empty());
  EXPECT_EQ(ToText(volumes), "");
  EXPECT_THAT(ToText({{"tp", 1234.4, 1234}}), HasSubstr("1,234"));
}

}  // namespace
}  // namespace longspan::apps
