// Ranks that divide the tokens of a chunk compute the bits that one rank does.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

struct Case {
  const char* model;
  int vocab;
  int context_ranks;
  const char* token_split;
  int stages;
  int64_t chunk_tokens;
};

std::string CaseName(const ::testing::TestParamInfo<Case>& param) {
  const Case& c = param.param;
  std::string name =
      fmt::format("{}_cp{}_{}_pp{}", c.model, c.context_ranks, c.token_split, c.stages);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ContextParallelTest : public ::testing::TestWithParam<Case> {
 protected:
  static Layout LayoutOf(const Case& c, const char* backend) {
    return {.backend = backend,
            .dtype = "f32",
            .stages = c.stages,
            .context_ranks = c.context_ranks,
            .token_split = c.token_split,
            .chunk_tokens = c.chunk_tokens,
            .page_size = 16};
  }
  static Layout OneRank(const Case& c, const char* backend) {
    return {.backend = backend, .dtype = "f32", .chunk_tokens = c.chunk_tokens, .page_size = 16};
  }
};

INSTANTIATE_TEST_SUITE_P(Models, ContextParallelTest,
                         ::testing::Values(Case{"rand-llama", 320, 2, "interleave", 1, 64},
                                           Case{"rand-llama31", 320, 3, "zigzag", 2, 7},
                                           Case{"rand-qwen2", 320, 4, "interleave", 3, 333},
                                           Case{"rand-qwen3", 320, 4, "zigzag", 1, 100},
                                           Case{"rand-deepseek-v32", 320, 3, "interleave", 2, 100},
                                           Case{"tiny-qwen3-moe", 1024, 2, "zigzag", 2, 64},
                                           Case{"tiny-deepseek-v3", 1024, 2, "interleave", 1, 100},
                                           Case{"tiny-deepseek-v32", 1024, 4, "zigzag", 2, 64}),
                         CaseName);

TEST_P(ContextParallelTest, LogitsAreTheSameBits) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  for (const char* backend : {"reference", "cpu"}) {
    const auto one = Start(model, OneRank(c, backend));
    const Layout layout = LayoutOf(c, backend);
    const auto several = Start(model, layout);
    const std::vector<int64_t> lengths =
        c.vocab == 320 ? std::vector<int64_t>{1, 2, 17, 150} : std::vector<int64_t>{2, 70};
    for (const int64_t length : lengths) {
      const auto ids = RandomIds(length, c.vocab, 3);
      const auto positions = SomePositions(length);
      ExpectSameBits(Score(*several, ids, positions), Score(*one, ids, positions),
                     fmt::format("{} length {}", layout.ToString(), length));
    }
  }
}

// Chunks and decoding rows of several sequences in one step, with random draws and penalties.
TEST_P(ContextParallelTest, TokensOfMixedBatchesAreTheSame) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  const auto requests = [&] {
    std::vector<engine::Request> all;
    for (uint64_t i = 0; i < 5; ++i) {
      engine::Request& request = all.emplace_back();
      request.prompt = RandomIds(1 + 9 * static_cast<int64_t>(i), c.vocab, i);
      request.max_tokens = 6;
      request.ignore_end_tokens = true;
      if (i % 3 == 1) request.sampling = {.temperature = 0.9, .top_k = 7, .seed = i};
      if (i % 3 == 2) request.sampling = {.repetition_penalty = 1.3, .top_logprobs = 2};
    }
    return all;
  };
  const auto want = Generate(*Start(model, OneRank(c, "reference")), requests());
  const auto got = Generate(*Start(model, LayoutOf(c, "reference")), requests());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].ids, want[i].ids) << i;
    EXPECT_EQ(got[i].logprobs, want[i].logprobs) << i;
  }
}

// Ranks that divide tokens, each of them ranks that divide heads: the bits of the latter alone.
TEST(ContextAndTensorParallelTest, LogitsAreTheBitsOfTensorRanksAlone) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto ids = RandomIds(150, 1024, 3);
  const auto positions = SomePositions(150);
  const Layout heads = {.tensor_ranks = 2, .chunk_tokens = 64};
  Layout both = heads;
  both.stages = 2;
  both.context_ranks = 2;
  ExpectSameBits(Score(*Start(model, both), ids, positions),
                 Score(*Start(model, heads), ids, positions), both.ToString());
}

// A cache in bf16, computed in f32: what is gathered is what is cached.
TEST(ContextParallelTypesTest, TheCacheMayHaveAnotherType) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto ids = RandomIds(100, 1024, 3);
  const auto positions = SomePositions(100);
  Layout layout = {.backend = "cpu", .dtype = "f32", .kv_cache_dtype = "bf16", .chunk_tokens = 30};
  const Scores want = Score(*Start(model, layout), ids, positions);
  layout.context_ranks = 3;
  ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
}

// Stages that a plan passes more than once.
TEST(ContextParallelLoopsTest, LoopedStagesGiveTheSameBits) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto ids = RandomIds(100, 1024, 3);
  const auto positions = SomePositions(100);
  const Scores want = Score(*Start(model, {.chunk_tokens = 30}), ids, positions);
  const Layout layout = {.stages = 2, .virtual_stages = 2, .context_ranks = 2, .chunk_tokens = 30};
  ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
}

}  // namespace
}  // namespace longspan::testing
