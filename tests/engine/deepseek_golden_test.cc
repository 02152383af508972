// DeepSeek V3 and V3.2 against Hugging Face transformers: logits and hidden states, and greedy text
// through several stages.
#include <gtest/gtest.h>

#include "tests/engine/deepseek_cases.h"
#include "tests/support/effort.h"

namespace longspan::testing {
namespace {

constexpr size_t kLongestOnReference = Effort(400, 60);
constexpr size_t kLongestOnCpu = Effort(1024, 300);

class DeepseekGoldenTest : public ::testing::TestWithParam<DeepseekCase> {};

TEST_P(DeepseekGoldenTest, ReferenceGivesLogitsAndHiddenStates) {
  if (IsFixture(GetParam().model)) LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenF32(GetParam(), {.backend = "reference", .threads = 2}, kLongestOnReference);
}

TEST_P(DeepseekGoldenTest, CudaInF32GivesLogitsAndHiddenStates) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  if (IsFixture(GetParam().model)) LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenF32(GetParam(), {.backend = "cuda", .dtype = "f32"}, kLongestOnCpu);
}

TEST_P(DeepseekGoldenTest, CpuInF32GivesLogitsAndHiddenStates) {
  if (IsFixture(GetParam().model)) LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenF32(GetParam(), {.backend = "cpu", .dtype = "f32", .threads = 2}, kLongestOnCpu);
}

INSTANTIATE_TEST_SUITE_P(Models, DeepseekGoldenTest, ::testing::ValuesIn(kDeepseekCases));

class TrainedDeepseekTest : public ::testing::TestWithParam<DeepseekCase> {};

TEST_P(TrainedDeepseekTest, CpuInBf16StaysNear) {
  LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenBf16(GetParam(), {.backend = "cpu", .dtype = "bf16", .threads = 2}, kLongestOnCpu);
}

TEST_P(TrainedDeepseekTest, CudaInBf16StaysNear) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenBf16(GetParam(), {.backend = "cuda", .dtype = "bf16"}, SIZE_MAX);
}

TEST_P(TrainedDeepseekTest, GreedyIdsAreTheReferencesThroughThreeStages) {
  LONGSPAN_REQUIRE_FIXTURES();
  const char* model = GetParam().model;
  const auto engine =
      Start(ModelFolder(model), {.backend = "reference", .stages = 3, .chunk_tokens = 100});
  for (const GoldenCase& golden : ReadGolden(model)) {
    if (golden.ids.size() > kLongestOnReference) continue;
    const auto output = Generate(
        *engine, {.prompt = golden.ids, .max_tokens = static_cast<int64_t>(golden.greedy.size())});
    EXPECT_EQ(output.ids, golden.greedy) << golden.name;
  }
  EXPECT_EQ(engine->pages().in_use(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, TrainedDeepseekTest, ::testing::ValuesIn(kTrainedDeepseekCases));

}  // namespace
}  // namespace longspan::testing
