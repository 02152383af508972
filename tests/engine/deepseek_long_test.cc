// DeepSeek V3 and V3.2 against Hugging Face transformers up to 16,000 tokens.
#include <gtest/gtest.h>

#include "tests/engine/deepseek_cases.h"

namespace longspan::testing {
namespace {

// What the reference backend computes in half a minute.
constexpr size_t kLongestOnReference = 4100;
constexpr size_t kLongestOnCpu = 16000;

class DeepseekLongTest : public ::testing::TestWithParam<DeepseekCase> {};

TEST_P(DeepseekLongTest, ReferenceGivesLogitsAndHiddenStates) {
  LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenF32(GetParam(), {.backend = "reference", .stages = 2}, kLongestOnReference);
}

TEST_P(DeepseekLongTest, CpuInF32GivesLogitsAndHiddenStates) {
  LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenF32(GetParam(), {.backend = "cpu", .dtype = "f32", .threads = 2}, kLongestOnCpu);
}

TEST_P(DeepseekLongTest, CpuInBf16StaysNear) {
  LONGSPAN_REQUIRE_FIXTURES();
  ExpectGoldenBf16(GetParam(), {.backend = "cpu", .dtype = "bf16", .threads = 2}, kLongestOnCpu);
}

INSTANTIATE_TEST_SUITE_P(Models, DeepseekLongTest,
                         ::testing::ValuesIn(kTrainedDeepseekCases.first(2)));
// Once its weights are loaded it computes what the others do.
INSTANTIATE_TEST_SUITE_P(Fp8Model, DeepseekLongTest,
                         ::testing::ValuesIn(kTrainedDeepseekCases.subspan(2)));

}  // namespace
}  // namespace longspan::testing
