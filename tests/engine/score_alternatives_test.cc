// Rows of a prompt that are scored report the likeliest tokens, as sampled ones do.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace longspan::testing {
namespace {

class AlternativesSink : public engine::OutputSink {
 public:
  void OnScore(plan::SequenceId, engine::ScoreOutput score) override {
    scores.push_back(std::move(score));
  }
  std::vector<engine::ScoreOutput> scores;
};

std::vector<std::pair<int32_t, float>> BestOf(const std::vector<float>& logits, size_t count) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<std::pair<int32_t, float>> best;
  for (size_t i = 0; i < count; ++i)
    best.emplace_back(order[i], static_cast<float>(logits[order[i]] - std::log(sum)));
  return best;
}

engine::Request ToScore(int alternatives, bool with_logits) {
  return {.prompt = RandomIds(20, 320, 4),
          .max_tokens = 1,
          .sampling = {.top_logprobs = alternatives},
          .score_positions = {0, 7, 18},
          .return_logits = with_logits};
}

// With a whole vocabulary and with one that two ranks divide.
TEST(ScoreAlternativesTest, AreTheLargestOfTheLogits) {
  for (const int tensor_ranks : {1, 2}) {
    const auto engine =
        Start(ModelFolder("rand-llama"), {.dtype = "f32", .tensor_ranks = tensor_ranks});
    AlternativesSink three;
    AlternativesSink five;
    AlternativesSink none;
    ASSERT_TRUE(engine->Submit(ToScore(3, /*with_logits=*/false), &three).ok());
    ASSERT_TRUE(engine->Submit(ToScore(5, /*with_logits=*/true), &five).ok());
    ASSERT_TRUE(engine->Submit(ToScore(0, /*with_logits=*/false), &none).ok());
    ASSERT_TRUE(engine->RunUntilIdle().ok());
    ASSERT_EQ(five.scores.size(), 3u);
    ASSERT_EQ(three.scores.size(), 3u);
    ASSERT_EQ(none.scores.size(), 3u);
    for (size_t i = 0; i < five.scores.size(); ++i) {
      const auto expected = BestOf(five.scores[i].logits, 5);
      const auto& got = five.scores[i].top_logprobs;
      ASSERT_EQ(got.size(), 5u);
      for (size_t j = 0; j < got.size(); ++j) {
        EXPECT_EQ(got[j].first, expected[j].first);
        EXPECT_NEAR(got[j].second, expected[j].second, 1e-4);
      }
      EXPECT_TRUE(three.scores[i].logits.empty());
      EXPECT_EQ(three.scores[i].top_logprobs, std::vector(got.begin(), got.begin() + 3));
      EXPECT_TRUE(none.scores[i].top_logprobs.empty());
    }
  }
}

}  // namespace
}  // namespace longspan::testing
