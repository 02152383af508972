#include "apps/pipeline_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;
// Timings are on the host's clock, which does not begin at 0.
constexpr int64_t kBoot = 5'000 * kMs;

plan::StageTiming Timing(int64_t start_ms, int64_t end_ms, int64_t kernels_ms) {
  return {.start = kBoot + start_ms * kMs,
          .end = kBoot + end_ms * kMs,
          .kernels = kernels_ms * kMs,
          .cpu = kernels_ms * kMs,
          .wait = (end_ms - start_ms - kernels_ms) * kMs};
}

engine::StepRecord Step(std::vector<engine::ComputedSlice> slices,
                        std::vector<plan::StageTiming> stages) {
  return {.slices = std::move(slices), .stages = std::move(stages)};
}

TEST(PipelineReportTest, IsEmptyBeforeTheFirstStep) {
  const PipelineReport report(3);
  EXPECT_EQ(report.stages(), 3);
  EXPECT_EQ(report.bubble_share(), 0);
  EXPECT_EQ(report.cpu_share(), 1);
  EXPECT_EQ(report.ToJson()["chunks"], nlohmann::ordered_json::array());
}

TEST(PipelineReportTest, CountsWhatStagesWaitedAsBubble) {
  PipelineReport report(2);
  // Two chunks of 10 ms through two stages: 30 ms for 4 x 10 ms of work.
  report.Add(Step({{{7}, 0, 64, true}}, {Timing(0, 10, 10), Timing(0, 20, 10)}));
  report.Add(Step({{{7}, 64, 100, true}}, {Timing(10, 20, 10), Timing(20, 30, 10)}));
  EXPECT_EQ(report.stages(), 2);
  EXPECT_THAT(report.bubble_share(), DoubleEq(1 - 40.0 / 60.0));
  EXPECT_THAT(report.mean_stage_seconds(), ElementsAre(DoubleEq(0.01), DoubleEq(0.01)));
  ASSERT_EQ(report.chunks().size(), 2U);
  EXPECT_THAT(report.chunks()[0].wait_ms, ElementsAre(DoubleEq(0), DoubleEq(10)));
}

TEST(PipelineReportTest, LeavesOutStepsThatOnlyDecode) {
  PipelineReport report(1);
  report.Add(Step({{{1}, 0, 64, true}}, {Timing(0, 10, 10)}));
  report.Add(Step({{{1}, 64, 65, false}}, {Timing(10, 90, 1)}));
  report.Add(Step({{{2}, 0, 64, true}}, {Timing(90, 100, 5)}));
  EXPECT_EQ(report.chunks().size(), 2U);
  EXPECT_THAT(report.bubble_share(), DoubleEq(1 - 15.0 / 20.0));
}

TEST(PipelineReportTest, DividesAStepOverItsSlicesByRows) {
  PipelineReport report(2);
  report.Add(Step({{{1}, 80, 81, false}, {{2}, 0, 3, true}, {{3}, 5, 9, true}},
                  {Timing(0, 16, 8), Timing(0, 32, 16)}));
  ASSERT_EQ(report.chunks().size(), 2U);
  EXPECT_EQ(report.chunks()[1].sequence, 3);
  EXPECT_THAT(report.chunks()[0].stage_ms, ElementsAre(DoubleEq(3), DoubleEq(6)));
  EXPECT_THAT(report.chunks()[1].stage_ms, ElementsAre(DoubleEq(4), DoubleEq(8)));
  EXPECT_THAT(report.mean_stage_seconds(), ElementsAre(DoubleEq(0.012)));
}

TEST(PipelineReportTest, TellsHowMuchOfItsCoresItHad) {
  PipelineReport report(2);
  plan::StageTiming disturbed = Timing(0, 10, 10);
  disturbed.cpu = 7 * kMs;
  report.Add(Step({{{1}, 0, 64, true}}, {disturbed, Timing(0, 20, 10)}));
  EXPECT_THAT(report.cpu_share(), DoubleEq(17.0 / 20.0));
}

TEST(PipelineReportTest, WritesTheDocumentedJson) {
  PipelineReport report(1);
  report.Add(Step({{{4}, 64, 128, true}}, {Timing(0, 10, 8)}));
  const nlohmann::ordered_json expected = nlohmann::ordered_json::parse(R"({
    "stages": 1,
    "chunks": [{"seq": 4, "begin": 64, "end": 128,
                "start_ms": [0.0], "end_ms": [10.0], "stage_ms": [8.0], "wait_ms": [2.0], "transfer_ms": [0.0]}],
    "bubble_share": 0.2, "cpu_share": 1.0})");
  nlohmann::ordered_json json = report.ToJson();
  EXPECT_NEAR(json["bubble_share"].get<double>(), 0.2, 1e-12);
  json["bubble_share"] = 0.2;
  EXPECT_EQ(json, expected);
}

}  // namespace
}  // namespace longspan::apps
