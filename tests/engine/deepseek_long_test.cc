// DeepSeek V3 and V3.2 against Hugging Face transformers beyond the length at which attention is
// sparse, in float32.
#include <gtest/gtest.h>

#include "tests/engine/deepseek_cases.h"

namespace longspan::testing {
namespace {

// What the reference backend computes in half a minute.
constexpr size_t kLongest = 4100;

class DeepseekLongTest : public ::testing::TestWithParam<DeepseekCase> {};

TEST_P(DeepseekLongTest, LogitsAndHiddenStatesAreTheReferences) {
  const auto& [model, tolerance] = GetParam();
  LONGSPAN_REQUIRE_FIXTURES();
  const auto engine = Start(ModelFolder(model), {.backend = "reference", .stages = 2});
  for (const GoldenCase& golden : ReadGolden(model)) {
    if (golden.ids.size() > kLongest) continue;
    const Deviation deviation = Compare(Score(*engine, golden.ids, golden.positions), golden);
    EXPECT_LE(deviation.largest, tolerance) << golden.name;
    EXPECT_LE(deviation.hidden, tolerance) << golden.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DeepseekLongTest, ::testing::ValuesIn(kTrainedDeepseekCases));

}  // namespace
}  // namespace longspan::testing
