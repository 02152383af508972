// A cached prefix changes the time, never the result.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/golden.h"

namespace longspan::testing {
namespace {

using Ids = std::vector<int32_t>;

Ids operator+(Ids ids, const Ids& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

engine::Request Ask(Ids prompt, int64_t max_tokens = 8) {
  return {.prompt = std::move(prompt), .max_tokens = max_tokens, .ignore_end_tokens = true};
}

void ExpectSame(const Generated& got, const Generated& want) {
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.logprobs, want.logprobs);
}

class PrefixTest : public ::testing::TestWithParam<Layout> {};

TEST_P(PrefixTest, AHitGivesTheBitsOfAMiss) {
  const auto model = ModelFolder(GetParam().backend == "cpu" ? "tiny-qwen3-moe" : "rand-qwen3");
  Layout layout = GetParam();
  const auto engine = Start(model, layout);
  layout.reuse_prefixes = false;
  const auto without = Start(model, layout);

  const Ids document = RandomIds(150, 320, 1);
  const Ids first = document + RandomIds(20, 320, 2);
  const Ids second = document + RandomIds(37, 320, 3);
  EXPECT_EQ(Generate(*engine, Ask(first)).cached_tokens, 0);
  const auto hit = Generate(*engine, Ask(second));
  EXPECT_EQ(hit.cached_tokens, 150 / layout.page_size * layout.page_size);
  const auto miss = Generate(*without, Ask(second));
  EXPECT_EQ(miss.cached_tokens, 0);
  ExpectSame(hit, miss);

  // The logits and the residual stream behind the prefix.
  const auto last = static_cast<int64_t>(second.size()) - 1;
  const Scores scores = Score(*engine, second, {151, last});
  EXPECT_GE(scores.cached_tokens, 144);
  const Scores want = Score(*without, second, {151, last});
  EXPECT_EQ(scores.logits, want.logits);
  EXPECT_EQ(scores.hidden, want.hidden);
  // Rows inside of it are computed when they are asked for.
  const Scores inside = Score(*engine, second, {40, last});
  EXPECT_LE(inside.cached_tokens, 40);
  EXPECT_EQ(inside.logits, Score(*without, second, {40, last}).logits);
  EXPECT_EQ(engine->pages().in_use(), 0);
}

TEST_P(PrefixTest, ASecondTurnReusesPromptAndOutput) {
  const auto model = ModelFolder(GetParam().backend == "cpu" ? "tiny-qwen3-moe" : "rand-qwen3");
  Layout layout = GetParam();
  const auto engine = Start(model, layout);
  const Ids prompt = RandomIds(90, 320, 4);
  const auto turn = Generate(*engine, Ask(prompt, 45));
  const Ids next = prompt + turn.ids + RandomIds(11, 320, 5);
  const auto hit = Generate(*engine, Ask(next));
  EXPECT_EQ(hit.cached_tokens, (90 + 44) / layout.page_size * layout.page_size);
  layout.reuse_prefixes = false;
  ExpectSame(hit, Generate(*Start(model, layout), Ask(next)));
}

// Chunks whose cuts are not where pages end.
INSTANTIATE_TEST_SUITE_P(
    Layouts, PrefixTest,
    ::testing::Values(Layout{.chunk_tokens = 512, .page_size = 16},
                      Layout{.stages = 3, .chunk_tokens = 50, .page_size = 16},
                      Layout{.stages = 2, .chunk_tokens = 7, .page_size = 8},
                      Layout{.backend = "cpu", .stages = 2, .chunk_tokens = 100, .page_size = 16},
                      Layout{.stages = 2,
                             .context_ranks = 3,
                             .token_split = "zigzag",
                             .chunk_tokens = 50,
                             .page_size = 16}),
    [](const auto& param) {
      return fmt::format("{}{}stages{}ranks", param.param.backend, param.param.stages,
                         param.param.context_ranks);
    });

// Many prompts over few documents, all at once, in a cache that holds a part of them.
TEST(PrefixLoadTest, PromptsInCompanyWithHitsAndEvictionsAreAsAlone) {
  const auto model = ModelFolder("rand-llama");
  std::vector<engine::Request> requests;
  for (int i = 0; i < 20; ++i)
    requests.push_back(
        Ask(RandomIds(40 + 30 * (i % 3), 320, i % 3) + RandomIds(3 + i, 320, 10 + i), 3 + i % 5));
  std::vector<Generated> want;
  const auto alone = Start(model, {.reuse_prefixes = false});
  for (const auto& request : requests) want.push_back(Generate(*alone, request));
  for (int stages = 1; stages <= 3; ++stages) {
    const auto engine = Start(model, {.stages = stages,
                                      .chunk_tokens = 24,
                                      .page_size = 8,
                                      .max_total_tokens = 320,
                                      .max_running = 4});
    int64_t cached = 0;
    for (int round = 0; round < 2; ++round) {
      const auto got = Generate(*engine, requests);
      for (size_t i = 0; i < got.size(); ++i) {
        ExpectSame(got[i], want[i]);
        cached += got[i].cached_tokens;
      }
    }
    EXPECT_GT(cached, 500) << stages;
    EXPECT_EQ(engine->pages().in_use(), 0);
  }
}

}  // namespace
}  // namespace longspan::testing
