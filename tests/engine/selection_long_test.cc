// The positions that the indexers of DeepSeek V3.2 select out of up to 16,000, against Hugging Face
// transformers.
#include <gtest/gtest.h>

#include "tests/engine/selections.h"

namespace longspan::testing {
namespace {

using tensor::DType;

constexpr size_t kShortest = 400;

struct LongSelections {
  const char* model;
  size_t longest;
};

class SelectionLongTest : public ::testing::TestWithParam<LongSelections> {};

// The reference backend would take minutes here; what float32 on the cpu selects is compared with
// the golden positions, and what bfloat16 selects with that.
TEST_P(SelectionLongTest, IsTheGoldenOne) {
  LONGSPAN_REQUIRE_FIXTURES();
  const auto& [model, longest] = GetParam();
  int compared = 0;
  for (const GoldenCase& golden : ReadGolden(model)) {
    if (golden.ids.size() <= kShortest || golden.ids.size() > longest) continue;
    const auto wide = LastRuns(model, "cpu", DType::kF32, golden);
    ExpectGoldenSelections(golden, wide);
    ExpectBf16Selections(golden, wide, LastRuns(model, "cpu", DType::kBf16, golden));
    ++compared;
  }
  EXPECT_GT(compared, 1);
}

INSTANTIATE_TEST_SUITE_P(Models, SelectionLongTest,
                         ::testing::Values(LongSelections{"tiny-deepseek-v32", 16000},
                                           LongSelections{"tiny-deepseek-v32-fp8", 4100}),
                         [](const auto& param) {
                           return std::string(param.index == 0 ? "bf16" : "fp8") + "_weights";
                         });

}  // namespace
}  // namespace longspan::testing
