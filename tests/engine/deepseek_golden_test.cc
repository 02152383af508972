// DeepSeek V3 and V3.2 against Hugging Face transformers, in float32: logits and hidden states, and
// greedy text through several stages.
#include <gtest/gtest.h>

#include "tests/engine/deepseek_cases.h"

namespace longspan::testing {
namespace {

constexpr size_t kLongestFast = 400;

class DeepseekGoldenTest : public ::testing::TestWithParam<DeepseekCase> {};

TEST_P(DeepseekGoldenTest, LogitsAndHiddenStatesAreTheReferences) {
  const auto& [model, tolerance] = GetParam();
  if (IsFixture(model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto engine = Start(ModelFolder(model), {.backend = "reference", .threads = 2});
  for (const GoldenCase& golden : ReadGolden(model)) {
    if (golden.ids.size() > kLongestFast) continue;
    const Deviation deviation = Compare(Score(*engine, golden.ids, golden.positions), golden);
    EXPECT_LE(deviation.largest, tolerance) << golden.name;
    EXPECT_LE(deviation.hidden, tolerance) << golden.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DeepseekGoldenTest, ::testing::ValuesIn(kDeepseekCases));

class DeepseekGreedyTest : public ::testing::TestWithParam<DeepseekCase> {};

TEST_P(DeepseekGreedyTest, IdsAreTheReferencesThroughThreeStages) {
  const DeepseekCase& c = GetParam();
  LONGSPAN_REQUIRE_FIXTURES();
  const auto engine =
      Start(ModelFolder(c.model), {.backend = "reference", .stages = 3, .chunk_tokens = 100});
  for (const GoldenCase& golden : ReadGolden(c.model)) {
    if (golden.ids.size() > kLongestFast) continue;
    const auto output = Generate(
        *engine, {.prompt = golden.ids, .max_tokens = static_cast<int64_t>(golden.greedy.size())});
    EXPECT_EQ(output.ids, golden.greedy) << golden.name;
  }
  EXPECT_EQ(engine->pool().free_pages(), engine->pool().pages());
}

INSTANTIATE_TEST_SUITE_P(Models, DeepseekGreedyTest, ::testing::ValuesIn(kTrainedDeepseekCases));

}  // namespace
}  // namespace longspan::testing
