// Ranks that divide heads, columns and the vocabulary compute what one rank does, but for the order
// of their sums.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

struct Case {
  const char* model;
  int vocab;
  int tensor_ranks;
  int stages = 1;
};

std::string CaseName(const ::testing::TestParamInfo<Case>& param) {
  std::string name =
      fmt::format("{}_tp{}_pp{}", param.param.model, param.param.tensor_ranks, param.param.stages);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class TensorParallelTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Models, TensorParallelTest,
    ::testing::Values(Case{"rand-llama", 320, 2}, Case{"rand-llama", 320, 2, 2},
                      Case{"rand-llama31", 320, 2}, Case{"rand-qwen2", 320, 2},
                      Case{"rand-qwen3", 320, 2}, Case{"rand-deepseek-v32", 320, 2},
                      Case{"tiny-qwen3-moe", 1024, 2}, Case{"tiny-qwen3-moe", 1024, 4},
                      Case{"tiny-qwen3-moe", 1024, 8}, Case{"tiny-qwen3-moe", 1024, 2, 2},
                      Case{"tiny-deepseek-v3", 1024, 2}, Case{"tiny-deepseek-v32", 1024, 4}),
    CaseName);

TEST_P(TensorParallelTest, LogitsAreTheSameToRounding) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  // The sums of `cpu` alone, in blocks of f32, are about as far from exact ones.
  for (const auto& [backend, bound] : {std::pair("reference", 1e-5), {"cpu", 2e-5}}) {
    for (const int64_t length : {1, 17, 333}) {
      const auto ids = RandomIds(length, c.vocab, 3);
      const auto positions = SomePositions(length);
      const Scores want = Score(
          *Start(model, {.backend = backend, .dtype = "f32", .chunk_tokens = 100}), ids, positions);
      const Layout layout = {.backend = backend,
                             .dtype = "f32",
                             .stages = c.stages,
                             .tensor_ranks = c.tensor_ranks,
                             .chunk_tokens = 100};
      const Scores got = Score(*Start(model, layout), ids, positions);
      ASSERT_EQ(got.positions, want.positions);
      for (size_t i = 0; i < want.logits.size(); ++i)
        EXPECT_LE(LargestDifference(got.logits[i], want.logits[i]), bound)
            << layout.ToString() << " position " << want.positions[i];
      ASSERT_EQ(got.hidden.size(), want.hidden.size());
      for (size_t depth = 0; depth < want.hidden.size(); ++depth)
        EXPECT_LE(LargestDifference(got.hidden[depth], want.hidden[depth]), bound)
            << layout.ToString() << " depth " << depth;
    }
  }
}

std::vector<engine::Request> MixedRequests(int vocab) {
  const std::vector<spec::SamplingSpec> samplings = {
      {},
      {.top_logprobs = 3},
      {.temperature = 0.8, .top_k = 5, .seed = 1},
      {.temperature = 1.2, .top_k = 20, .top_p = 0.9, .min_p = 0.01, .seed = 2, .top_logprobs = 4},
      {.temperature = 1, .seed = 3},
      {.repetition_penalty = 1.3, .frequency_penalty = 0.2},
      {.logit_bias = {{7, 1000.0F}}},
      {.temperature = 0.8,
       .top_k = 5,
       .seed = 4,
       .logit_bias = {{3, -1000.0F}, {vocab - 1, 5.0F}}}};
  std::vector<engine::Request> requests;
  for (size_t i = 0; i < samplings.size(); ++i)
    requests.push_back({.prompt = RandomIds(3 + 40 * static_cast<int64_t>(i), vocab, i),
                        .max_tokens = 12,
                        .sampling = samplings[i],
                        .ignore_end_tokens = true});
  return requests;
}

// Greedy, from the best few of every rank, from all logits, with penalties, together and alone.
TEST_P(TensorParallelTest, TokensAreTheSame) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  const Layout one = {.dtype = "f32", .chunk_tokens = 64};
  Layout several = one;
  several.stages = c.stages;
  several.tensor_ranks = c.tensor_ranks;
  const auto want = Generate(*Start(model, one), MixedRequests(c.vocab));
  const auto expect_same = [&](const Generated& got, size_t request) {
    EXPECT_EQ(got.ids, want[request].ids) << "request " << request;
    ASSERT_EQ(got.logprobs.size(), want[request].logprobs.size());
    for (size_t i = 0; i < got.logprobs.size(); ++i)
      EXPECT_NEAR(got.logprobs[i], want[request].logprobs[i], 1e-4) << "request " << request;
  };
  const auto engine = Start(model, several);
  const auto together = Generate(*engine, MixedRequests(c.vocab));
  for (size_t i = 0; i < want.size(); ++i) expect_same(together[i], i);
  auto requests = MixedRequests(c.vocab);
  for (size_t i = 0; i < want.size(); ++i)
    expect_same(Generate(*engine, std::move(requests[i])), i);
}

// A rank keeps its share of the weights and of the cache.
TEST(TensorParallelMemoryTest, SharesAreSmaller) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto one = Start(model, {.dtype = "f32"});
  const auto two = Start(model, {.dtype = "f32", .tensor_ranks = 2});
  const runtime::RankReady& whole = one->group_info().ranks.front();
  ASSERT_EQ(two->group_info().ranks.size(), 2u);
  for (const runtime::RankReady& share : two->group_info().ranks) {
    EXPECT_LT(static_cast<double>(share.weight_bytes),
              0.56 * static_cast<double>(whole.weight_bytes));
    EXPECT_EQ(2 * share.kv_bytes_per_page, whole.kv_bytes_per_page);
  }
}

}  // namespace
}  // namespace longspan::testing
