#include "apps/line_chart.h"

#include <gmock/gmock.h>

namespace longspan::apps {
namespace {

using testing::HasSubstr;
using testing::Not;

LineChart Chart() {
  return {.title = "Time",
          .x_name = "tokens",
          .y_name = "seconds",
          .logarithmic_x = true,
          .lines = {{"first", {{1024, 1}, {131072, 2.5}}}, {"second", {{1024, 4}}}}};
}

TEST(LineChartTest, EveryPointIsDrawnWithItsValues) {
  const std::string svg = DrawCharts({Chart()}, 600);
  EXPECT_THAT(svg, HasSubstr("<title>first: 128K, 2.5</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>second: 1K, 4</title>"));
  EXPECT_THAT(svg, HasSubstr(">seconds</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

TEST(LineChartTest, ChartsLieBelowOneAnother) {
  const std::string one = DrawCharts({Chart()}, 600);
  const std::string two = DrawCharts({Chart(), Chart()}, 600);
  EXPECT_THAT(one, HasSubstr("height=\"330\""));
  EXPECT_THAT(two, HasSubstr("height=\"660\""));
}

TEST(LineChartTest, AChartWithOnePointOrNoneIsDrawn) {
  EXPECT_THAT(DrawCharts({{.lines = {{"one", {{1, 1}}}}}}, 600), Not(HasSubstr("nan")));
  EXPECT_THAT(DrawCharts({{.lines = {}}}, 600), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace longspan::apps
