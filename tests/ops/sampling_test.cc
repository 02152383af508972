// What sampling must do on every backend: the distribution, the kept sets, penalties,
// repeatability.
#include <algorithm>
#include <limits>
#include <set>

#include <gmock/gmock.h>

#include "tests/ops/compare.h"
#include "tests/support/sampling_rows.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;
using support::Sampled;
using support::SampleRows;
using support::SamplingRow;
using testing::ElementsAre;

class SamplingTest : public BackendTest {
 protected:
  // One draw for every position in [0, count) from the same logits.
  Sampled Draw(const std::vector<float>& logits, const SamplingRow& row, int64_t count) {
    std::vector<float> all;
    std::vector<SamplingRow> rows;
    for (int64_t position = 0; position < count; ++position) {
      all.insert(all.end(), logits.begin(), logits.end());
      rows.push_back(row);
      rows.back().position = position;
    }
    TestDevice device(
        *GetParam().backend, 2,
        {.rows = count, .logit_rows = count, .vocab_size = static_cast<int64_t>(logits.size())});
    return SampleRows(device, all, rows);
  }

  std::set<int32_t> Drawn(const std::vector<float>& logits, const spec::SamplingSpec& spec,
                          int64_t count = 3000) {
    const Sampled sampled = Draw(logits, {.spec = spec}, count);
    return {sampled.tokens.begin(), sampled.tokens.end()};
  }

  int32_t Greedy(const std::vector<float>& logits, SamplingRow row) {
    row.spec.temperature = 0;
    return Draw(logits, row, 1).tokens[0];
  }
};
INSTANTIATE_TEST_SUITE_P(, SamplingTest, testing::ValuesIn(AllBackends()), CaseName);

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  double sum = 0;
  for (const float logit : logits) {
    weights.push_back(std::exp((logit - largest) / temperature));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// Pearson's statistic of n draws is, for n p >> 1, chi-square with the number of outcomes less one
// degrees of freedom; it exceeds d + 2 sqrt(d x) + 2 x with probability below exp(-x) (Laurent and
// Massart 2000). x = 20: once in 500 million.
void ExpectFrequencies(const std::vector<int32_t>& tokens, const std::vector<double>& expected) {
  std::vector<int64_t> counts(expected.size());
  for (const int32_t token : tokens) ++counts.at(token);
  const auto draws = static_cast<double>(tokens.size());
  double statistic = 0;
  double freedom = -1;
  for (size_t token = 0; token < expected.size(); ++token) {
    if (expected[token] == 0) {
      EXPECT_EQ(counts[token], 0) << "token " << token;
      continue;
    }
    const double mean = draws * expected[token];
    ASSERT_GE(mean, 20) << "too few draws for token " << token;
    statistic += (counts[token] - mean) * (counts[token] - mean) / mean;
    ++freedom;
  }
  constexpr double kX = 20;
  EXPECT_LE(statistic, freedom + 2 * std::sqrt(freedom * kX) + 2 * kX);
}

const std::vector<float> kTwelve = {0.5f,  -1.0f, 2.0f, 0.0f,  1.5f,  -0.5f,
                                    -2.0f, 1.0f,  0.1f, -1.5f, 0.25f, 0.9f};
constexpr int64_t kDraws = 40000;

TEST_P(SamplingTest, FollowsTheSoftmaxAtEveryTemperature) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    SCOPED_TRACE(temperature);
    const std::vector<float> logits(kTwelve.begin(), kTwelve.begin() + (temperature < 1 ? 5 : 12));
    const Sampled sampled = Draw(logits, {.spec = {.temperature = temperature, .seed = 3}}, kDraws);
    ExpectFrequencies(sampled.tokens, Softmax(logits, temperature));
  }
}

// The kept tokens keep their ratios.
TEST_P(SamplingTest, FollowsTheSoftmaxOfWhatIsKept) {
  std::vector<double> expected = Softmax(kTwelve, 1);
  double sum = 0;
  for (const int token : {2, 4, 7, 11}) sum += expected[token];
  for (size_t token = 0; token < expected.size(); ++token)
    expected[token] =
        token == 2 || token == 4 || token == 7 || token == 11 ? expected[token] / sum : 0;
  const Sampled sampled =
      Draw(kTwelve, {.spec = {.temperature = 1, .top_k = 4, .seed = 8}}, kDraws);
  ExpectFrequencies(sampled.tokens, expected);
}

TEST_P(SamplingTest, DrawsOfNeighbouringPositionsAreIndependent) {
  const std::vector<float> logits = {0.4f, 0.0f, -0.7f, 0.2f};
  const auto p = Softmax(logits, 1);
  const Sampled sampled = Draw(logits, {.spec = {.temperature = 1, .seed = 1}}, kDraws);
  // Pairs that do not overlap, so that the draws of the statistic are independent.
  std::vector<int32_t> pairs;
  for (size_t i = 0; i + 1 < sampled.tokens.size(); i += 2)
    pairs.push_back(sampled.tokens[i] * 4 + sampled.tokens[i + 1]);
  std::vector<double> expected;
  for (const double first : p)
    for (const double second : p) expected.push_back(first * second);
  ExpectFrequencies(pairs, expected);
}

TEST_P(SamplingTest, GreedyTakesTheLargestAndTheLowerOfEqualTokens) {
  EXPECT_EQ(Greedy({1, 3, 2, 3}, {}), 1);
  EXPECT_EQ(Greedy({-5, -4, -4}, {}), 1);
  EXPECT_EQ(Greedy({0}, {}), 0);
}

TEST_P(SamplingTest, TopKKeepsTheLargestAndTheLowerOfEqualTokens) {
  EXPECT_THAT(Drawn({1, 2, 2, 2, 0}, {.temperature = 1, .top_k = 2}), ElementsAre(1, 2));
  EXPECT_THAT(Drawn({1, 2, 2, 2, 0}, {.temperature = 100, .top_k = 4}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Drawn({1, 1, 1}, {.temperature = 1, .top_k = 50}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Drawn({1, 1, 1}, {.temperature = 1, .top_k = 0}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Drawn({0, 1, 2}, {.temperature = 100, .top_k = 1}), ElementsAre(2));
}

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST_P(SamplingTest, TopPKeepsTheSmallestSetThatReachesIt) {
  const auto logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_p = 0.01}), ElementsAre(1));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_p = 0.39}), ElementsAre(1));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_p = 0.41}), ElementsAre(1, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_p = 0.69}), ElementsAre(1, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_p = 0.71}), ElementsAre(1, 2, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_p = 1}), ElementsAre(0, 1, 2, 3));
  // Equal tokens: the lower ones; two of four reach 0.5 exactly.
  EXPECT_THAT(Drawn({1, 1, 1, 1}, {.temperature = 1, .top_p = 0.5}), ElementsAre(0, 1));
}

TEST_P(SamplingTest, TopPCountsAfterTemperatureAndTopK) {
  // At temperature 0.5 the probabilities are as 1 : 16 : 4 : 9 of 30.
  const auto logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(Drawn(logits, {.temperature = 0.5, .top_p = 0.52}), ElementsAre(1));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_p = 0.52}), ElementsAre(1, 3));
  // Of the two that top-k keeps, the first has 4 of 7.
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_k = 2, .top_p = 0.55}), ElementsAre(1));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6}), ElementsAre(1, 3));
}

TEST_P(SamplingTest, MinPDropsWhatIsFarBelowTheBest) {
  const auto logits = LogitsOf({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .min_p = 0.2}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .min_p = 0.3}), ElementsAre(1, 2, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .min_p = 0.6}), ElementsAre(1, 3));
  EXPECT_THAT(Drawn(logits, {.temperature = 1, .min_p = 0.9}), ElementsAre(1));
  EXPECT_THAT(Drawn(logits, {.temperature = 0.5, .min_p = 0.3}), ElementsAre(1, 3));
}

TEST_P(SamplingTest, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  // Token 0 was in the prompt, token 2 in the output: both are penalised.
  const SamplingRow row = {
      .spec = {.repetition_penalty = 2}, .history_tokens = {0, 2}, .history_counts = {0, 3}};
  EXPECT_EQ(Greedy({4, 2.5f, 4.5f}, row), 1);  // 2, 2.5, 2.25
  EXPECT_EQ(Greedy({4, 1.5f, 5}, row), 2);     // 2, 1.5, 2.5
  EXPECT_EQ(Greedy({-1, -1.5f, -3}, row), 1);  // -2, -1.5, -6
  EXPECT_EQ(Greedy({-1, -2.5f, -3}, row), 0);  // -2, -2.5, -6
}

TEST_P(SamplingTest, FrequencyAndPresencePenaltiesCountTheOutputOnly) {
  SamplingRow row = {
      .spec = {.frequency_penalty = 0.5}, .history_tokens = {0, 1}, .history_counts = {0, 3}};
  EXPECT_EQ(Greedy({1, 2.4f, 0.8f}, row), 0);  // 1, 0.9, 0.8
  EXPECT_EQ(Greedy({1, 2.6f, 0.8f}, row), 1);  // 1, 1.1, 0.8
  row.spec = {.presence_penalty = 0.5};
  EXPECT_EQ(Greedy({1, 1.4f, 0.8f}, row), 0);  // 1, 0.9, 0.8
  EXPECT_EQ(Greedy({1, 1.6f, 0.8f}, row), 1);  // 1, 1.1, 0.8
  // All three, in the order of spec/sampling.h: 6 / 2 - 3 * 0.25 - 0.5 = 1.75.
  row.spec = {.repetition_penalty = 2, .frequency_penalty = 0.25, .presence_penalty = 0.5};
  EXPECT_EQ(Greedy({0, 6, 1.7f}, row), 1);
  EXPECT_EQ(Greedy({0, 6, 1.8f}, row), 2);
}

TEST_P(SamplingTest, PenaltiesOfOneRowLeaveTheOthersAlone) {
  TestDevice device(*GetParam().backend, 2, {.rows = 3, .logit_rows = 3, .vocab_size = 2});
  const SamplingRow plain;
  const SamplingRow penalised = {
      .spec = {.presence_penalty = 1}, .history_tokens = {1}, .history_counts = {1}};
  const std::vector<float> logits = {0, 0.5f, 0, 0.5f, 0, 0.5f};
  EXPECT_THAT(SampleRows(device, logits, std::vector{plain, penalised, plain}).tokens,
              ElementsAre(1, 0, 1));
}

TEST_P(SamplingTest, RepeatsForEqualSeedAndPositionOnly) {
  const std::vector<float> logits(100, 0.0f);
  const SamplingRow row = {.spec = {.temperature = 1, .seed = ~uint64_t{0}}};
  const auto first = Draw(logits, row, 64).tokens;
  EXPECT_EQ(Draw(logits, row, 64).tokens, first);
  SamplingRow other = row;
  other.spec.seed = 1;
  EXPECT_NE(Draw(logits, other, 64).tokens, first);
  EXPECT_GT((std::set<int32_t>(first.begin(), first.end()).size()), 30u);
}

TEST_P(SamplingTest, LogprobsAreOfTheLogitsAsTheyCame) {
  const SamplingRow row = {.spec = {.temperature = 2, .top_k = 3, .presence_penalty = 1},
                           .history_tokens = {2},
                           .history_counts = {1}};
  const Sampled sampled = Draw(kTwelve, row, 20);
  const auto p = Softmax(kTwelve, 1);
  for (size_t i = 0; i < sampled.tokens.size(); ++i) {
    const double want = std::log(p[sampled.tokens[i]]);
    EXPECT_NEAR(sampled.logprobs[i], want, Logprob(want, 12, 4, 2));
  }
}

TEST_P(SamplingTest, MaskedTokensAreNeverDrawn) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Drawn({-infinity, 0, -infinity, 0}, {.temperature = 100}), ElementsAre(1, 3));
  EXPECT_THAT(Drawn({-infinity, 0, 1}, {.temperature = 1, .top_p = 0.999, .min_p = 0.01}),
              ElementsAre(1, 2));
}

// A model that has gone wrong must not take the server with it: NaN is never drawn while there are
// numbers, and something in range is drawn in any case.
TEST_P(SamplingTest, NanIsNeverDrawn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Greedy({nan, 1, nan, 2}, {}), 3);
  EXPECT_THAT(Drawn({nan, 1, nan, 1}, {.temperature = 1, .top_p = 0.999, .min_p = 0.1}),
              ElementsAre(1, 3));
  for (const float value : {nan, infinity, -infinity}) {
    const std::vector<float> logits(5, value);
    for (const double temperature : {0.0, 1.0}) {
      const spec::SamplingSpec spec = {
          .temperature = temperature, .top_k = 3, .top_p = 0.9, .min_p = 0.1};
      for (const int32_t token : Drawn(logits, spec, 20)) {
        EXPECT_GE(token, 0);
        EXPECT_LT(token, 5);
      }
    }
  }
}

TEST_P(SamplingTest, NoRowsAreFine) {
  TestDevice device(*GetParam().backend, 2, {.rows = 1, .logit_rows = 1, .vocab_size = 4});
  EXPECT_TRUE(SampleRows(device, {}, {}).tokens.empty());
}

class SamplingParityTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SamplingParityTest);
INSTANTIATE_TEST_SUITE_P(, SamplingParityTest, testing::ValuesIn(ComparedBackends()), CaseName);

constexpr double kRange = 12;  // of random logits

TEST_P(SamplingParityTest, DrawsTheSameTokens) {
  for (const int64_t vocab_size : {1, 320, 1024, 50257}) {
    SCOPED_TRACE(vocab_size);
    const int64_t count = vocab_size > 10000 ? 16 : 200;
    Devices devices(GetParam(), {.rows = count, .logit_rows = count, .vocab_size = vocab_size});
    const auto logits = RandomValues(count * vocab_size, 1, kRange / 2);
    std::vector<SamplingRow> rows;
    for (int64_t row = 0; row < count; ++row) {
      const spec::SamplingSpec spec = {.temperature = row % 4 * 0.5,
                                       .top_k = static_cast<int>(row % 3 * 20),
                                       .top_p = row % 5 == 0 ? 1 : 0.8,
                                       .min_p = row % 7 == 0 ? 0.05 : 0,
                                       .seed = static_cast<uint64_t>(row) << 40,
                                       .repetition_penalty = row % 2 == 0 ? 1 : 1.2,
                                       .frequency_penalty = row % 2 == 0 ? 0 : 0.3,
                                       .presence_penalty = row % 2 == 0 ? 0 : 0.1};
      rows.push_back({.spec = spec, .position = row * 1000003});
      if (row % 2 == 0) continue;
      for (int32_t token = 0; token < vocab_size; token += 7) {
        rows.back().history_tokens.push_back(token);
        rows.back().history_counts.push_back(token % 4);
      }
    }
    const Sampled got = SampleRows(devices.tested, logits, rows);
    const Sampled want = SampleRows(devices.reference, logits, rows);
    EXPECT_EQ(got.tokens, want.tokens);
    ExpectWithin(got.logprobs, want.logprobs, [&](int64_t i) {
      return Logprob(want.logprobs[i], vocab_size, kRange, kRange / 2);
    });
  }
}

TEST_P(SamplingParityTest, LogprobsMatchTheReference) {
  for (const auto& [vocab_size, count] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 5}, {1023, 20}, {50257, 20}}) {
    constexpr int64_t kRows = 5;
    Devices devices(GetParam(), {.rows = kRows, .logit_rows = kRows, .vocab_size = vocab_size});
    // On a grid, so that equal logits are ties.
    auto logits = RandomValues(kRows * vocab_size, 1, kRange / 2);
    for (float& logit : logits) logit = std::round(logit * 64) / 64;
    const auto bound = [n = vocab_size](float want) {
      return Logprob(want, n, kRange, kRange / 2);
    };

    const auto top = [&, v = vocab_size, n = count](TestDevice& device) {
      const View tokens = device.Zeros(DType::kI32, {kRows, n});
      const View logprobs = device.Zeros(DType::kF32, {kRows, n});
      device.Run(device.ops().top_logprobs,
                 {.logits = device.Floats(logits, DType::kF32, {kRows, v}),
                  .tokens = tokens,
                  .logprobs = logprobs});
      return Sampled{device.ReadInts(tokens), device.ReadFloats(logprobs)};
    };
    const Sampled want = top(devices.reference);
    const Sampled got = top(devices.tested);
    EXPECT_EQ(got.tokens, want.tokens);
    ExpectWithin(got.logprobs, want.logprobs, [&](int64_t i) { return bound(want.logprobs[i]); });

    const std::vector<int32_t> given(kRows, static_cast<int32_t>(vocab_size - 1));
    const auto of_given = [&, v = vocab_size](TestDevice& device) {
      const View logprobs = device.Zeros(DType::kF32, {kRows});
      device.Run(device.ops().token_logprob,
                 {.logits = device.Floats(logits, DType::kF32, {kRows, v}),
                  .tokens = device.Ints(given, {kRows}),
                  .logprobs = logprobs});
      return device.ReadFloats(logprobs);
    };
    const auto want_given = of_given(devices.reference);
    ExpectWithin(of_given(devices.tested), want_given,
                 [&](int64_t i) { return bound(want_given[i]); });
  }
}

}  // namespace
}  // namespace longspan::op_suite
