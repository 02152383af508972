#include "apps/plan_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "sim/hardware_file.h"
#include "tests/support/published_models.h"

namespace longspan::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PlanReport ReportOn(const sim::Layout& layout) {
  PlanReport report;
  report.request.model = support::Qwen3With235B();
  report.request.hardware =
      *sim::LoadHardware(std::string(LONGSPAN_SOURCE_DIR) + "/hardware/h20.json", {});
  report.request.fp8_weights = true;
  report.request.weight_block = 128;
  report.found.layouts = {layout};
  return report;
}

sim::Layout OnFour(int64_t kv_bytes) {
  sim::Layout layout{.mesh = {.tp = 4}, .kv_bytes = kv_bytes, .chunk_tokens = 8192};
  layout.stages = {{0, 94}};
  layout.chunk_ends = {131072};
  layout.ttft_s = 10;
  return layout;
}

TEST(PlanReportTest, TheCommandRepeatsWhatItWasPlannedWith) {
  PlanReport report = ReportOn(OnFour(2));
  report.request.memory_fraction = 0.65;
  report.model_path = "/models/Qwen3 (FP8)/o'clock";
  const std::string command = ServeCommand(report, report.found.layouts[0]);
  EXPECT_THAT(command, HasSubstr("--mem-fraction-static 0.65"));
  EXPECT_THAT(command, HasSubstr(R"(--model-path '/models/Qwen3 (FP8)/o'\''clock' --tp-size 4)"));
  report.model_path = "/models/qwen3";
  EXPECT_THAT(ServeCommand(report, report.found.layouts[0]),
              HasSubstr("--model-path /models/qwen3 "));
  report.model_path.clear();
  EXPECT_THAT(ServeCommand(report, report.found.layouts[0]), Not(HasSubstr("--model-path")));
}

// The printed factors, multiplied, are the printed bytes.
TEST(PlanReportTest, BytesOfEveryAxisComeWithTheirFormula) {
  PlanReport report = ReportOn(OnFour(2));
  report.request.gpus = 8;
  const auto layout = sim::BestOf(report.request, {.pp = 2, .tp = 4}, 1, 2);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  report.found.layouts = {*layout};
  const std::string text = Explain(report);
  const double stream = 131072.0 * 4096 * 2;
  EXPECT_THAT(text,
              HasSubstr(fmt::format("  pp: {:.2f} GB = 131072 rows x 4096 columns x 2 bytes x "
                                    "(2 x 1 - 1) / 2 borders",
                                    stream / 2 / 1e9)));
  EXPECT_THAT(text,
              HasSubstr(fmt::format("  tp: {:.2f} GB = 94 / 2 layers x 2 sums x 2 (4 - 1) / 4 "
                                    "x 131072 rows x 4096 columns x 2 bytes",
                                    47 * 2 * 2 * 0.75 * stream / 1e9)));
  EXPECT_THAT(text, Not(HasSubstr("  cp:")));
}

TEST(PlanReportTest, ACommandThatWouldBeRefusedSaysSo) {
  PlanReport report = ReportOn(OnFour(1));
  EXPECT_THAT(ToText(report), HasSubstr("would be refused: --kv-cache-dtype fp8 is not built"));
  EXPECT_THAT(ToJson(report)["layouts"][0]["command_refused"].get<std::string>(),
              HasSubstr("--kv-cache-dtype fp8"));
  report.found.layouts.push_back(OnFour(2));
  EXPECT_THAT(ToText(report), HasSubstr("The best one that runs takes 10.000 s:"));
  EXPECT_FALSE(ToJson(report)["layouts"][1].contains("command_refused"));

  report.found.layouts[0].kv_bytes = 2;
  EXPECT_THAT(ToText(report), Not(HasSubstr("would be refused")));
  report.found.layouts[0].mesh.tp = 8;
  EXPECT_THAT(ToText(report), HasSubstr("mlp.experts.*.gate_proj.weight"));
}

}  // namespace
}  // namespace longspan::apps
