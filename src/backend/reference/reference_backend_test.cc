// The reference against sums worked out by hand and against the textbook's formulas, written down
// once more without blocks, pages or scratch.
#include <cmath>
#include <vector>

#include <gmock/gmock.h>

#include "backend/reference/test_fixture.h"

namespace longspan::backend::reference {
namespace {

using tensor::ConstView;
using tensor::DType;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ReferenceTest, HasEveryOp) {
  std::vector<ops::OpKind> all;
  for (int kind = 0; kind <= static_cast<int>(ops::OpKind::kTopLogits); ++kind)
    all.push_back(static_cast<ops::OpKind>(kind));
  EXPECT_THAT(ops::MissingOps(ops_, all), testing::IsEmpty());
}

TEST_F(ReferenceTest, RefusesOtherTypesAndSaysWhatToUse) {
  EXPECT_TRUE(backend_.CheckTypes(DType::kF32, DType::kF32).ok());
  EXPECT_THAT(backend_.CheckTypes(DType::kBf16, DType::kF32).message(), HasSubstr("--dtype f32"));
  EXPECT_THAT(backend_.CheckTypes(DType::kF32, DType::kBf16).message(),
              HasSubstr("--kv-cache-dtype f32"));
  const float value = 1;
  const ConstView part(&value, DType::kF32, {1, 1});
  EXPECT_FALSE(backend_.Pack({.parts = {&part, 1}, .compute = DType::kBf16}).ok());
}

TEST_F(ReferenceTest, RefusesWhatCannotBeMade) {
  EXPECT_THAT(backend_.CreateQueue({.threads = 0}).status().message(), HasSubstr("--threads"));
  EXPECT_FALSE(backend_.Pack({.parts = {}, .compute = DType::kF32}).ok());
  const std::vector<float> values(6);
  const ConstView parts[] = {ConstView(values.data(), DType::kF32, {1, 2}),
                             ConstView(values.data(), DType::kF32, {2, 3})};
  EXPECT_THAT(backend_.Pack({.parts = parts, .compute = DType::kF32}).status().message(),
              HasSubstr("2 and 3 columns"));
  EXPECT_EQ(backend_.Allocate(int64_t{1} << 60).status().code(),
            base::StatusCode::kResourceExhausted);
}

TEST_F(ReferenceTest, LinearIsTheSumOfProducts) {
  constexpr int64_t kRows = 19;
  constexpr int64_t kColumns = 53;
  constexpr int64_t kFeatures = 70;
  auto x = RandomValues(kRows * kColumns, 1);
  auto weights = RandomValues(kFeatures * kColumns, 2);
  auto bias = RandomValues(kFeatures, 3);
  const ConstView part = Floats(weights, {kFeatures, kColumns});
  const auto packed =
      std::move(backend_.Pack({.parts = {&part, 1}, .compute = DType::kF32})).value();
  std::vector<float> out(kRows * kFeatures);
  Run(ops_.linear, {.x = Floats(x, {kRows, kColumns}),
                    .weight = packed.get(),
                    .bias = Floats(bias, {kFeatures}),
                    .out = Floats(out, {kRows, kFeatures})});
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t feature = 0; feature < kFeatures; ++feature) {
      long double sum = bias[feature];
      for (int64_t i = 0; i < kColumns; ++i)
        sum += static_cast<long double>(x[row * kColumns + i]) * weights[feature * kColumns + i];
      // One rounding to float; the sum in double is exact to far less.
      ASSERT_NEAR(out[row * kFeatures + feature], sum, 0x1p-24 * std::abs(sum) + 1e-13);
    }
  }
}

// Two slices over pages of 8 tokens: every row against the formula over dense keys.
TEST_F(ReferenceTest, AttentionIsTheSoftmaxOfTheScores) {
  constexpr int64_t kHeads = 4;
  constexpr int64_t kKvHeads = 2;
  constexpr int64_t kDim = 20;
  constexpr int64_t kPage = 8;
  constexpr int64_t kPages = 25;
  constexpr int64_t kMaxPages = 13;
  constexpr float kScale = 0.7f;
  // The first: 3 rows from position 97 on; the second: one at 80. Pages are dealt backwards.
  std::vector<int32_t> positions = {97, 98, 99, 80};
  std::vector<int32_t> begin = {0, 3, 4};
  std::vector<int32_t> page_table(2 * kMaxPages);
  for (int64_t i = 0; i < kPages; ++i) page_table[i] = static_cast<int32_t>(kPages - 1 - i);
  auto queries = RandomValues(4 * kHeads * kDim, 1);
  for (float& value : queries) value *= 5;
  auto keys = RandomValues(kPages * kKvHeads * kPage * kDim, 2);
  auto values = RandomValues(kPages * kKvHeads * kPage * kDim, 3);
  std::vector<float> out(queries.size());
  Run(ops_.attention, {.queries = Floats(queries, {4, kHeads, kDim}),
                       .key_cache = Floats(keys, {kPages, kKvHeads, kPage, kDim}),
                       .value_cache = Floats(values, {kPages, kKvHeads, kPage, kDim}),
                       .tables = {.rows = 4,
                                  .slices = 2,
                                  .max_kv_length = 100,
                                  .positions = Ints(positions, {4}),
                                  .slots = {},
                                  .slice_row_begin = Ints(begin, {3}),
                                  .page_table = Ints(page_table, {2, kMaxPages})},
                       .scale = kScale,
                       .out = Floats(out, {4, kHeads, kDim})});

  const auto at = [&](int64_t slice, int64_t head, int64_t position) {
    const int64_t page = page_table[slice * kMaxPages + position / kPage];
    return ((page * kKvHeads + head / 2) * kPage + position % kPage) * kDim;
  };
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const float* query = queries.data() + (row * kHeads + head) * kDim;
      std::vector<long double> sums(kDim);
      long double weights = 0;
      for (int64_t position = 0; position <= positions[row]; ++position) {
        const int64_t token = at(row / 3, head, position);
        long double score = 0;
        for (int64_t d = 0; d < kDim; ++d)
          score += static_cast<long double>(query[d]) * keys[token + d];
        const long double weight = std::exp(score * kScale);
        weights += weight;
        for (int64_t d = 0; d < kDim; ++d) sums[d] += weight * values[token + d];
      }
      // One rounding to float of a number below 1.
      for (int64_t d = 0; d < kDim; ++d)
        ASSERT_NEAR(out[(row * kHeads + head) * kDim + d], sums[d] / weights, 0x1p-24);
    }
  }
}

TEST_F(ReferenceTest, RmsNormByHand) {
  // mean(x^2) = (9 + 16) / 2 = 12.5, 16 with epsilon: the root is 4. A row of zeros stays one.
  std::vector<float> x = {3, -4, 0, 0};
  std::vector<float> weight = {4, 8};
  Run(ops_.rms_norm, {.x = Floats(x, {2, 2}),
                      .weight = Floats(weight, {2}),
                      .epsilon = 3.5,
                      .out = Floats(x, {2, 2})});
  EXPECT_THAT(x, ElementsAre(3, -8, 0, 0));
}

TEST_F(ReferenceTest, RopeByHand) {
  // Angles 0 and, for position 1, pi / 2 rounded to float, whose cosine is -4.37e-8.
  std::vector<int32_t> positions = {0, 1};
  std::vector<float> frequencies = {1.57079637f, 0};
  std::vector<float> cosines(4);
  std::vector<float> sines(4);
  Run(ops_.rope_table, {.positions = Ints(positions, {2}),
                        .inverse_frequencies = Floats(frequencies, {2}),
                        .cosines = Floats(cosines, {2, 2}),
                        .sines = Floats(sines, {2, 2})});
  EXPECT_THAT(cosines, ElementsAre(1, 1, -4.37113883e-8f, 1));
  EXPECT_THAT(sines, ElementsAre(0, 0, 1, 0));
  cosines[2] = 0;
  std::vector<float> x = {1, 2, 3, 4, 1, 2, 3, 4};
  Run(ops_.rope, {.x = Floats(x, {2, 1, 4}),
                  .cosines = Floats(cosines, {2, 2}),
                  .sines = Floats(sines, {2, 2}),
                  .pairs = spec::RopePairs::kHalfSplit});
  EXPECT_THAT(x, ElementsAre(1, 2, 3, 4, -3, 2, 1, 4));
  Run(ops_.rope, {.x = Floats(x, {2, 1, 4}),
                  .cosines = Floats(cosines, {2, 2}),
                  .sines = Floats(sines, {2, 2}),
                  .pairs = spec::RopePairs::kInterleaved});
  EXPECT_THAT(x, ElementsAre(1, 2, 3, 4, -2, -3, 1, 4));
}

TEST_F(ReferenceTest, SiluMulByHand) {
  std::vector<float> gate_up = {0, 1, 5, 2};
  std::vector<float> out(2);
  Run(ops_.silu_mul, {.gate_up = Floats(gate_up, {1, 4}), .out = Floats(out, {1, 2})});
  EXPECT_THAT(out, ElementsAre(0, static_cast<float>(2 / (1 + std::exp(-1.0)))));
}

TEST_F(ReferenceTest, ExpertsByHand) {
  // Weights 1 : 2 : 5 of 8, then three equal ones.
  std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f), 1, 1, 1};
  std::vector<int32_t> ids(4);
  std::vector<float> weights(4);
  const auto route = [&](bool normalize) {
    Run(ops_.router, {.logits = Floats(logits, {2, 3}),
                      .normalize_weights = normalize,
                      .expert_ids = Ints(ids, {2, 2}),
                      .expert_weights = Floats(weights, {2, 2})});
  };
  const auto near = [](double value) { return testing::FloatNear(value, 1e-7); };
  route(true);
  EXPECT_THAT(ids, ElementsAre(2, 1, 0, 1));
  EXPECT_THAT(weights, ElementsAre(near(5.0 / 7), near(2.0 / 7), 0.5f, 0.5f));
  route(false);
  EXPECT_THAT(weights, ElementsAre(near(5.0 / 8), near(0.25), near(1.0 / 3), near(1.0 / 3)));

  std::vector<int32_t> begin(4);
  std::vector<int32_t> source_rows(4);
  std::vector<int32_t> places(4);
  Run(ops_.expert_order, {.expert_ids = Ints(ids, {2, 2}),
                          .expert_begin = Ints(begin, {4}),
                          .source_rows = Ints(source_rows, {4}),
                          .sorted_places = Ints(places, {2, 2})});
  EXPECT_THAT(begin, ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(source_rows, ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(places, ElementsAre(3, 1, 0, 2));

  std::vector<float> x = {10, 20, 30, 40};
  weights = {0.5f, 2, 1, 3};
  std::vector<float> out(2);
  Run(ops_.expert_combine, {.x = Floats(x, {4, 1}),
                            .sorted_places = Ints(places, {2, 2}),
                            .expert_weights = Floats(weights, {2, 2}),
                            .out = Floats(out, {2, 1})});
  EXPECT_THAT(out, ElementsAre(0.5f * 40 + 2 * 20, 10 + 3 * 30));
}

}  // namespace
}  // namespace longspan::backend::reference
