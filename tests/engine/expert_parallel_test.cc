// Ranks that divide the experts: what they have, and that their sums do not depend on company.
#include <gtest/gtest.h>

#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

struct Case {
  const char* model;
  int vocab;
  int tensor_ranks;
  int expert_ranks;
};

// In every run, and whatever rows come with a row.
TEST(ExpertParallelTest, ARowsBitsDoNotDependOnTheChunking) {
  for (const Case& c : {Case{"tiny-qwen3-moe", 1024, 4, 2}, Case{"rand-deepseek-v32", 320, 2, 2}}) {
    for (const char* backend : {"reference", "cpu"}) {
      Layout layout = {.backend = backend,
                       .dtype = "f32",
                       .tensor_ranks = c.tensor_ranks,
                       .expert_ranks = c.expert_ranks,
                       .deterministic = true,
                       .reuse_prefixes = false};
      const auto ids = RandomIds(100, c.vocab, 3);
      const auto positions = SomePositions(std::ssize(ids));
      const auto engine = Start(ModelFolder(c.model), layout);
      const Scores want = Score(*engine, ids, positions);
      ExpectSameBits(Score(*engine, ids, positions), want, layout.ToString());
      for (const int64_t chunk : {7, 64}) {
        layout.chunk_tokens = chunk;
        ExpectSameBits(Score(*Start(ModelFolder(c.model), layout), ids, positions), want,
                       layout.ToString());
      }
    }
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
