// Numbers hidden in texts of 300 to 16,000 tokens, through one and two stages.
#include <algorithm>
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/engine/golden.h"

namespace longspan::testing {
namespace {

// In texts of so many tokens at least and at most.
class NeedleTest : public ::testing::TestWithParam<std::pair<size_t, size_t>> {};

TEST_P(NeedleTest, TwoStagesGiveTheTextOfOneAndTheReferencesIds) {
  const auto [shortest, longest] = GetParam();
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto exact = Start(model, {.backend = "cpu", .dtype = "f32", .threads = 2});
  const auto one = Start(model, {.backend = "cpu", .dtype = "bf16", .threads = 2});
  const auto two = Start(model, {.backend = "cpu", .dtype = "bf16", .stages = 2});
  for (const GoldenCase& golden : ReadGolden("tiny-qwen3-moe")) {
    if (!golden.name.starts_with("needle")) continue;
    if (golden.ids.size() < shortest || golden.ids.size() > longest) continue;
    const engine::Request request = {.prompt = golden.ids, .max_tokens = 32};
    const auto expected = Generate(*exact, request).ids;
    EXPECT_EQ(expected, golden.greedy) << golden.name;
    const auto alone = Generate(*one, request).ids;
    EXPECT_EQ(Generate(*two, request).ids, alone) << golden.name;
    const size_t certain = IdsBeforeANearTie(*exact, golden);
    EXPECT_GT(certain, 0u) << golden.name;
    for (size_t i = 0; i < std::min(certain, alone.size()); ++i)
      ASSERT_EQ(alone[i], golden.greedy[i]) << golden.name << " token " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Needles, NeedleTest,
                         ::testing::Values(std::pair<size_t, size_t>(0, 9000)));
INSTANTIATE_TEST_SUITE_P(LongestNeedles, NeedleTest,
                         ::testing::Values(std::pair<size_t, size_t>(9001, 20000)));

// All prompts of the golden file; the short ones are among the fast tests as well.
class LongGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LongGoldenTest, LogitsAreTheReferences) {
  const bool exact = std::string(GetParam()) == "f32";
  const auto engine =
      Start(ModelFolder("tiny-qwen3-moe"), {.backend = "cpu", .dtype = GetParam(), .threads = 2});
  double sum = 0;
  int64_t rows = 0;
  for (const GoldenCase& golden : ReadGolden("tiny-qwen3-moe")) {
    const Deviation deviation = Compare(Score(*engine, golden.ids, golden.positions), golden);
    std::printf("%s: largest %.1e, mean %.2f%% of std, flips %d\n", golden.name.c_str(),
                deviation.largest, 100 * deviation.mean, deviation.flips);
    EXPECT_LE(deviation.mean, 0.05) << golden.name;
    EXPECT_EQ(deviation.flips, 0) << golden.name;
    if (exact) {
      EXPECT_LE(deviation.largest, 1e-4) << golden.name;
      EXPECT_LE(deviation.hidden, 1e-4) << golden.name;
    }
    sum += deviation.mean * static_cast<double>(deviation.rows);
    rows += deviation.rows;
  }
  EXPECT_LE(sum / static_cast<double>(rows), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Types, LongGoldenTest, ::testing::Values("f32", "bf16"));

}  // namespace
}  // namespace longspan::testing
