// What ranks that divide a vocabulary need: the best of every part decide as the whole does.
#include <algorithm>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/ops/compare.h"
#include "tests/support/sampling_rows.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;
using support::Sampled;
using support::SampleRows;
using support::SamplingRow;
using tensor::DType;
using tensor::View;

class DividedVocabularyTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, DividedVocabularyTest, testing::ValuesIn(AllBackends()), CaseName);

constexpr int64_t kRows = 40;
constexpr int64_t kVocab = 96;
constexpr int64_t kParts = 3;
constexpr int64_t kPart = kVocab / kParts;
constexpr int64_t kBest = 7;

// Of every row its kBest tokens of each part, in ascending order.
struct BestOfParts {
  std::vector<std::vector<std::pair<int32_t, float>>> rows{kRows};
  std::vector<double> sums = std::vector<double>(kRows);  // of exp, over all parts
};

BestOfParts FindBest(TestDevice& device, const std::vector<float>& logits) {
  BestOfParts best;
  for (int64_t part = 0; part < kParts; ++part) {
    std::vector<float> of_part;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto begin = logits.begin() + row * kVocab + part * kPart;
      of_part.insert(of_part.end(), begin, begin + kPart);
    }
    const View tokens = device.Zeros(DType::kI32, {kRows, kBest});
    const View values = device.Zeros(DType::kF32, {kRows, kBest});
    const View log_sums = device.Zeros(DType::kF32, {kRows});
    device.Run(device.ops().top_logits,
               {.logits = device.Floats(of_part, DType::kF32, {kRows, kPart}),
                .tokens = tokens,
                .values = values,
                .log_sums = log_sums});
    const auto got_tokens = device.ReadInts(tokens);
    const auto got_values = device.ReadFloats(values);
    const auto got_sums = device.ReadFloats(log_sums);
    for (int64_t row = 0; row < kRows; ++row) {
      best.sums[row] += std::exp(static_cast<double>(got_sums[row]));
      for (int64_t i = row * kBest; i < (row + 1) * kBest; ++i) {
        EXPECT_EQ(got_values[i], of_part[row * kPart + got_tokens[i]]);
        best.rows[row].emplace_back(static_cast<int32_t>(part * kPart) + got_tokens[i],
                                    got_values[i]);
      }
    }
  }
  for (auto& row : best.rows) std::sort(row.begin(), row.end());
  return best;
}

TEST_P(DividedVocabularyTest, TheBestOfPartsDecideAsAllDo) {
  TestDevice device(*GetParam().backend, 2,
                    {.rows = kRows, .logit_rows = kRows, .vocab_size = kVocab});
  // On a grid, so that there are ties, also between parts.
  std::vector<float> logits = RandomValues(kRows * kVocab, 5, 3);
  for (float& logit : logits) logit = std::round(logit * 4) / 4;
  std::vector<SamplingRow> rows;
  for (int64_t row = 0; row < kRows; ++row)
    rows.push_back({.spec = {.temperature = row % 4 == 0 ? 0 : 0.9,
                             .top_k = static_cast<int>(1 + row % kBest),
                             .top_p = row % 3 == 0 ? 0.8 : 1,
                             .seed = 11},
                    .position = row});
  const Sampled whole = SampleRows(device, logits, rows);

  const BestOfParts best = FindBest(device, logits);
  std::vector<float> best_logits;
  std::vector<int32_t> best_tokens;
  for (const auto& row : best.rows) {
    for (const auto& [token, logit] : row) {
      best_tokens.push_back(token);
      best_logits.push_back(logit);
    }
  }
  const View tokens = device.Zeros(DType::kI32, {kRows});
  const View logprobs = device.Zeros(DType::kF32, {kRows});
  device.Run(device.ops().sample,
             {.logits = device.Floats(best_logits, DType::kF32, {kRows, kParts * kBest}),
              .tables = support::UploadSampling(device, rows),
              .column_tokens = device.Ints(best_tokens, {kRows, kParts * kBest}),
              .tokens = tokens,
              .logprobs = logprobs});
  EXPECT_EQ(device.ReadInts(tokens), whole.tokens);
  for (int64_t row = 0; row < kRows; ++row)
    EXPECT_NEAR(logits[row * kVocab + whole.tokens[row]] - std::log(best.sums[row]),
                whole.logprobs[row], 1e-5);
}

}  // namespace
}  // namespace longspan::op_suite
