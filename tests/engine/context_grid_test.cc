// Every layout of stages and context-parallel ranks gives the bits of one rank.
#include <algorithm>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

// Model, stages, chunk.
using Layouts = std::tuple<const char*, int, int64_t>;

std::string CaseName(const ::testing::TestParamInfo<Layouts>& param) {
  const auto& [model, stages, chunk] = param.param;
  std::string name = fmt::format("{}_pp{}_chunk{}", model, stages, chunk);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ContextGridTest : public ::testing::TestWithParam<Layouts> {};

INSTANTIATE_TEST_SUITE_P(
    Models, ContextGridTest,
    ::testing::Combine(::testing::Values("rand-llama", "rand-llama31", "rand-qwen2", "rand-qwen3",
                                         "rand-deepseek-v32", "tiny-qwen3-moe", "tiny-deepseek-v3",
                                         "tiny-deepseek-v32"),
                       ::testing::Values(1, 2, 3), ::testing::Values<int64_t>(1, 7, 64, 100, 333)),
    CaseName);

// As many stages as these models have layers.
INSTANTIATE_TEST_SUITE_P(FourStages, ContextGridTest,
                         ::testing::Combine(::testing::Values("rand-deepseek-v32", "tiny-qwen3-moe",
                                                              "tiny-deepseek-v3",
                                                              "tiny-deepseek-v32"),
                                            ::testing::Values(4),
                                            ::testing::Values<int64_t>(7, 100)),
                         CaseName);

TEST_P(ContextGridTest, GivesTheBitsOfOneRank) {
  const auto& [name, stages, chunk] = GetParam();
  if (IsFixture(name)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(name);
  const int vocab = std::string(name).starts_with("tiny-") ? 1024 : 320;
  const auto one = Start(model, {.dtype = "f32", .chunk_tokens = 333});
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const char* split : {"interleave", "zigzag"}) {
      const Layout layout = {.dtype = "f32",
                             .stages = stages,
                             .context_ranks = ranks,
                             .token_split = split,
                             .chunk_tokens = chunk};
      const auto several = Start(model, layout);
      for (const int64_t length : {1, 2, 3, 17, 333}) {
        const auto ids = RandomIds(length, vocab, 3);
        const auto positions = SomePositions(length);
        ExpectSameBits(Score(*several, ids, positions), Score(*one, ids, positions),
                       fmt::format("{} length {}", layout.ToString(), length));
      }
    }
  }
}

TEST(LongContextParallelTest, GivesTheBitsOfOneRank) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto ids = RandomIds(4097, 1024, 5);
  const auto positions = SomePositions(4097);
  const Scores want = Score(*Start(model, {.backend = "cpu", .dtype = "f32", .chunk_tokens = 2048}),
                            ids, positions);
  for (const char* split : {"interleave", "zigzag"}) {
    const Layout layout = {.backend = "cpu",
                           .dtype = "f32",
                           .stages = 2,
                           .context_ranks = 2,
                           .token_split = split,
                           .chunk_tokens = 500};
    ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
  }
}

}  // namespace
}  // namespace longspan::testing
