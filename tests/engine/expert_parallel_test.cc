// Ranks that divide the experts: what they have, and that their sums do not depend on company.
#include <gtest/gtest.h>

#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

struct Case {
  const char* model;
  int vocab;
  const char* backend;
  int tensor_ranks;
};

// In every run, and whatever rows come with a row.
TEST(ExpertParallelTest, ARowsBitsDoNotDependOnTheChunking) {
  for (const Case& c : {Case{"tiny-qwen3-moe", 1024, "cpu", 4},
                        {"rand-deepseek-v32", 320, "cpu", 2},
                        {"rand-deepseek-v32", 320, "reference", 2}}) {
    Layout layout = {.backend = c.backend,
                     .dtype = "f32",
                     .tensor_ranks = c.tensor_ranks,
                     .expert_ranks = 2,
                     .deterministic = true,
                     .reuse_prefixes = false};
    const auto ids = RandomIds(70, c.vocab, 3);
    const auto positions = SomePositions(std::ssize(ids));
    const auto engine = Start(ModelFolder(c.model), layout);
    const Scores want = Score(*engine, ids, positions);
    ExpectSameBits(Score(*engine, ids, positions), want, layout.ToString());
    layout.chunk_tokens = 7;
    ExpectSameBits(Score(*Start(ModelFolder(c.model), layout), ids, positions), want,
                   layout.ToString());
  }
}

// Every rank has its experts, whole or the columns that other lanes leave, and nothing of others.
TEST(ExpertParallelTest, ARankHoldsAsMuchOfTheExpertsAsWithoutIt) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto columns = Start(model, {.dtype = "f32", .tensor_ranks = 4});
  for (const int experts : {2, 4}) {
    const auto engine = Start(model, {.dtype = "f32", .tensor_ranks = 4, .expert_ranks = experts});
    for (const runtime::RankReady& rank : engine->group_info().ranks)
      EXPECT_EQ(rank.weight_bytes, columns->group_info().ranks.front().weight_bytes);
  }
}

}  // namespace
}  // namespace longspan::testing
