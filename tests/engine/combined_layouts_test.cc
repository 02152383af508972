// Stages, context-parallel, tensor-parallel and expert-parallel ranks at once: eight ranks against
// the reference outputs of Hugging Face transformers, with the tolerance of golden_logits_test.cc.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/golden.h"
#include "tests/support/effort.h"

namespace longspan::testing {
namespace {

struct Case {
  const char* model;
  int expert_ranks = 1;
};

std::string CaseName(const ::testing::TestParamInfo<Case>& param) {
  std::string name = fmt::format("{}_ep{}", param.param.model, param.param.expert_ranks);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<Case> Cases() {
  // What ranks do with each other's memory is the same for all models.
  if (kSanitized) return {{"rand-llama"}, {"rand-deepseek-v32", 4}};
  return {{"rand-llama"},           {"rand-llama31"},        {"rand-qwen2"},
          {"rand-qwen3"},           {"rand-deepseek-v32"},   {"rand-deepseek-v32", 2},
          {"rand-deepseek-v32", 4}, {"tiny-qwen3-moe"},      {"tiny-qwen3-moe", 2},
          {"tiny-qwen3-moe", 4},    {"tiny-deepseek-v3", 4}, {"tiny-deepseek-v32", 4}};
}

class EightRanksTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Models, EightRanksTest, ::testing::ValuesIn(Cases()), CaseName);

TEST_P(EightRanksTest, GiveTheReferencesLogits) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  for (const char* split : {"interleave", "zigzag"}) {
    const Layout layout = {.backend = "cpu",
                           .dtype = "f32",
                           .stages = 2,
                           .tensor_ranks = 2,
                           .expert_ranks = c.expert_ranks,
                           .context_ranks = 2,
                           .token_split = split,
                           .chunk_tokens = 50};
    const auto engine = Start(ModelFolder(c.model), layout);
    const size_t longest = static_cast<size_t>(Effort(400, 120));
    for (const GoldenCase& golden : ReadGolden(c.model)) {
      if (golden.ids.size() > longest) continue;
      const Deviation deviation = Compare(Score(*engine, golden.ids, golden.positions), golden);
      EXPECT_LE(deviation.largest, 1e-4) << golden.name << ' ' << layout.ToString();
      EXPECT_LE(deviation.hidden, 1e-4) << golden.name << ' ' << layout.ToString();
      if (golden.greedy.empty() || kSanitized) continue;
      const auto output = Generate(
          *engine,
          {.prompt = golden.ids, .max_tokens = static_cast<int64_t>(golden.greedy.size())});
      EXPECT_EQ(output.ids, golden.greedy) << golden.name << ' ' << layout.ToString();
    }
    EXPECT_EQ(engine->pages().in_use(), 0);
  }
}

// A step in which some ranks have no row, and experts that nobody chose.
TEST(EightRanksAtOnceTest, OneRowAloneAndManySequencesAtOnce) {
  const auto model = ModelFolder("rand-deepseek-v32");
  const Layout one = {.dtype = "f32"};
  Layout eight = one;
  eight.stages = 2;
  eight.context_ranks = 2;
  eight.tensor_ranks = 2;
  eight.expert_ranks = 4;
  const auto requests = [] {
    std::vector<engine::Request> all;
    for (uint64_t i = 0; i < 7; ++i)
      all.push_back({.prompt = RandomIds(1 + 11 * static_cast<int64_t>(i), 320, i),
                     .max_tokens = 5,
                     .ignore_end_tokens = true});
    return all;
  };
  const auto want = Generate(*Start(model, one), requests());
  const auto engine = Start(model, eight);
  const auto together = Generate(*engine, requests());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(together[i].ids, want[i].ids) << i;
    EXPECT_EQ(Generate(*engine, requests()[i]).ids, want[i].ids) << i << " alone";
  }
}

}  // namespace
}  // namespace longspan::testing
