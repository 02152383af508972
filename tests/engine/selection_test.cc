// The positions that the indexers of DeepSeek V3.2 select, against Hugging Face transformers.
#include <gtest/gtest.h>

#include "tests/engine/selections.h"

namespace longspan::testing {
namespace {

using tensor::DType;

constexpr size_t kLongest = 400;

class SelectionTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SelectionTest, IsTheGoldenOne) {
  LONGSPAN_REQUIRE_FIXTURES();
  int sparse = 0;
  for (const GoldenCase& golden : ReadGolden(GetParam())) {
    if (golden.ids.size() > kLongest) continue;
    ASSERT_FALSE(golden.selected.empty()) << golden.name;
    if (golden.selected[0].size() < golden.ids.size()) ++sparse;
    const auto reference = LastRuns(GetParam(), "reference", DType::kF32, golden);
    ExpectGoldenSelections(golden, reference);
    ExpectGoldenSelections(golden, LastRuns(GetParam(), "cpu", DType::kF32, golden));
    ExpectBf16Selections(golden, reference, LastRuns(GetParam(), "cpu", DType::kBf16, golden));
  }
  EXPECT_GT(sparse, 0) << "no case is longer than what is selected";
}

INSTANTIATE_TEST_SUITE_P(Models, SelectionTest,
                         ::testing::Values("tiny-deepseek-v32", "tiny-deepseek-v32-fp8"));

}  // namespace
}  // namespace longspan::testing
