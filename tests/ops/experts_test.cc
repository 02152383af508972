// router, expert_order, expert_combine.
#include <utility>

#include "tests/ops/compare.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;

class ExpertsTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExpertsTest);
INSTANTIATE_TEST_SUITE_P(, ExpertsTest, testing::ValuesIn(ComparedBackends()), CaseName);

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed Route(TestDevice& device, std::span<const float> logits, int64_t experts, int64_t k,
             bool normalize) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / experts;
  const View ids = device.Zeros(DType::kI32, {rows, k});
  const View weights = device.Zeros(DType::kF32, {rows, k});
  device.Run(device.ops().router, {.logits = device.Floats(logits, DType::kF32, {rows, experts}),
                                   .normalize_weights = normalize,
                                   .expert_ids = ids,
                                   .expert_weights = weights});
  return {device.ReadInts(ids), device.ReadFloats(weights)};
}

TEST_P(ExpertsTest, RouterMatchesTheReference) {
  for (const auto& [experts, k] : {std::pair(1, 1), {8, 2}, {8, 8}, {60, 4}, {128, 8}}) {
    for (const bool normalize : {true, false}) {
      SCOPED_TRACE(testing::Message() << k << " of " << experts);
      constexpr int64_t kRows = 50;
      Devices devices(GetParam(), {.rows = kRows, .experts = experts, .experts_per_token = k});
      constexpr double kRange = 8;
      // On a grid: equal logits are ties (to the lower expert), others far apart.
      auto logits = RandomValues(kRows * experts, 1, kRange / 2);
      for (float& logit : logits) logit = std::round(logit * 64) / 64;
      const Routed got = Route(devices.tested, logits, experts, k, normalize);
      const Routed want = Route(devices.reference, logits, experts, k, normalize);
      EXPECT_EQ(got.ids, want.ids);
      ExpectWithin(got.weights, want.weights, [&, n = experts](int64_t i) {
        return SoftmaxWeight(want.weights[i], n, kRange);
      });
    }
  }
}

struct SigmoidCase {
  int64_t experts;
  int64_t k;
  int64_t groups;
  int64_t groups_kept;
  bool with_bias;
  bool normalize;
};

TEST_P(ExpertsTest, SigmoidRouterMatchesTheReference) {
  for (const SigmoidCase& c : {SigmoidCase{16, 4, 4, 2, true, true},
                               {16, 4, 4, 2, false, false},
                               {8, 3, 8, 5, true, true},
                               {1, 1, 1, 1, false, true},
                               {60, 6, 1, 1, true, false},
                               {256, 8, 8, 4, true, true}}) {
    SCOPED_TRACE(testing::Message() << c.k << " of " << c.experts << " in " << c.groups);
    constexpr int64_t kRows = 50;
    Devices devices(GetParam(), {.rows = kRows, .experts = c.experts, .experts_per_token = c.k});
    // Few different logits and biases: ties everywhere; and claims that differ do so by far more
    // than rounding.
    auto logits = RandomValues(kRows * c.experts, 1, 4);
    for (float& logit : logits) logit = std::abs(std::round(logit));
    auto bias = RandomValues(c.experts, 2, 1);
    for (float& b : bias) b = std::round(b * 4) / 4;
    const auto run = [&](TestDevice& device) -> Routed {
      const View ids = device.Zeros(DType::kI32, {kRows, c.k});
      const View weights = device.Zeros(DType::kF32, {kRows, c.k});
      device.Run(device.ops().router,
                 {.logits = device.Floats(logits, DType::kF32, {kRows, c.experts}),
                  .scoring = spec::ExpertScoring::kSigmoid,
                  .bias = c.with_bias ? device.Floats(bias, DType::kF32, {c.experts}) : ConstView(),
                  .groups = c.groups,
                  .groups_kept = c.groups_kept,
                  .normalize_weights = c.normalize,
                  .scale = 2.5f,
                  .expert_ids = ids,
                  .expert_weights = weights});
      return {device.ReadInts(ids), device.ReadFloats(weights)};
    };
    const Routed got = run(devices.tested);
    const Routed want = run(devices.reference);
    EXPECT_EQ(got.ids, want.ids);
    ExpectWithin(got.weights, want.weights, [&](int64_t i) {
      // An exponential and a division each, a sum of k, a division, a product.
      const double relative = 2 * (kExpError + 4 * kUnitF32) + Gamma(c.k + 4);
      return Rounded(want.weights[i], relative * want.weights[i], DType::kF32);
    });
  }
}

struct Order {
  std::vector<int32_t> begin;
  std::vector<int32_t> source_rows;
  std::vector<int32_t> places;
};

Order SortPairs(TestDevice& device, std::span<const int32_t> ids, int64_t k, int64_t experts) {
  const auto pairs = static_cast<int64_t>(ids.size());
  const View begin = device.Zeros(DType::kI32, {experts + 1});
  const View source_rows = device.Zeros(DType::kI32, {pairs});
  const View places = device.Zeros(DType::kI32, {pairs / k, k});
  device.Run(device.ops().expert_order, {.expert_ids = device.Ints(ids, {pairs / k, k}),
                                         .expert_begin = begin,
                                         .source_rows = source_rows,
                                         .sorted_places = places});
  return {device.ReadInts(begin), device.ReadInts(source_rows), device.ReadInts(places)};
}

TEST_P(ExpertsTest, OrderMatchesTheReference) {
  struct Case {
    int64_t rows;
    int64_t k;
    int64_t experts;
    int64_t used;    // ids below this
    int absent = 0;  // every so many-th pair's expert is another rank's; 0: none
  };
  for (const Case& c : {Case{1, 1, 1, 1},
                        {40, 2, 8, 8},
                        {33, 4, 128, 5},
                        {0, 2, 4, 4},
                        {33, 4, 128, 5, 3},
                        {900, 4, 16, 16, 2},
                        {5, 2, 4, 4, 1}}) {
    Devices devices(GetParam(), {.rows = c.rows, .experts = c.experts, .experts_per_token = c.k});
    std::vector<int32_t> ids;
    for (int64_t row = 0; row < c.rows; ++row) {
      auto choices = support::RandomPermutation(c.used, row);
      ids.insert(ids.end(), choices.begin(), choices.begin() + c.k);
    }
    for (size_t pair = 0; c.absent > 0 && pair < ids.size(); pair += static_cast<size_t>(c.absent))
      ids[pair] = -1;
    const Order got = SortPairs(devices.tested, ids, c.k, c.experts);
    const Order want = SortPairs(devices.reference, ids, c.k, c.experts);
    EXPECT_EQ(got.begin, want.begin);
    EXPECT_EQ(got.source_rows, want.source_rows);
    EXPECT_EQ(got.places, want.places);
  }
}

// Half of the choices, and all of one row's, have no place where `some_absent`.
std::vector<int32_t> Places(int64_t rows, int64_t k, bool some_absent) {
  auto places = support::RandomPermutation(rows * k, 3);
  for (size_t i = 0; some_absent && i < places.size(); ++i)
    if (places[i] % 2 == 0 || i < static_cast<size_t>(k)) places[i] = -1;
  return places;
}

class CombineTest : public ExpertsTest {
 protected:
  static void ExpectTheReferences(bool some_absent);
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CombineTest);
INSTANTIATE_TEST_SUITE_P(, CombineTest, testing::ValuesIn(ComparedBackends()), CaseName);

TEST_P(CombineTest, MatchesTheReference) { ExpectTheReferences(false); }
TEST_P(CombineTest, LeavesOutWhatHasNoPlace) { ExpectTheReferences(true); }

void CombineTest::ExpectTheReferences(bool some_absent) {
  const DType type = GetParam().compute;
  for (const int64_t columns : {1, 33, 256}) {
    for (const int64_t k : {1, 2, 8}) {
      constexpr int64_t kRows = 9;
      Devices devices(GetParam(), {.rows = kRows, .experts = 16, .experts_per_token = k});
      const auto x = RandomValues(kRows * k * columns, 1, 1, type);
      const auto weights = support::Magnitudes(RandomValues(kRows * k, 2));
      const auto places = Places(kRows, k, some_absent);
      const auto combine = [&](TestDevice& device, std::span<const float> values, DType t) {
        const ColumnSlice out(device, std::vector<float>(kRows * columns, 0), t, columns);
        device.Run(device.ops().expert_combine,
                   {.x = device.Floats(values, t, {kRows * k, columns}),
                    .sorted_places = device.Ints(places, {kRows, k}),
                    .expert_weights = device.Floats(weights, DType::kF32, {kRows, k}),
                    .out = out.view()});
        out.ExpectMarks();
        return device.ReadFloats(out.view());
      };
      const auto want = combine(devices.reference, x, DType::kF32);
      const auto magnitude = combine(devices.reference, support::Magnitudes(x), DType::kF32);
      ExpectWithin(combine(devices.tested, x, type), want,
                   [&](int64_t i) { return SumOfProducts(want[i], k, magnitude[i], type); });
    }
  }
}

}  // namespace
}  // namespace longspan::op_suite
