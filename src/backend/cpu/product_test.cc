// Products on every instruction set that the machine has: right, and the same bits for a row
// whatever comes with it.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa_test_fixture.h"
#include "tests/support/random_values.h"
#include "tests/support/test_device.h"

namespace longspan::backend::cpu {
namespace {

using support::RandomValues;
using support::TestDevice;
using tensor::DType;

constexpr ops::WorkspaceShape kShape{.rows = 600, .max_columns = 2500, .experts = 8};

class ProductTest : public IsaTest {};

double UnitOf(DType type) { return type == DType::kBf16 ? 0x1p-8 : 0x1p-24; }

struct Case {
  DType compute;
  int64_t rows, features, columns;
  bool bias = false;
  bool float_out = false;
};

// |error| <= (columns + 2) f32 roundings of sum |x w|, and one rounding of the result.
void CheckCase(const Case& c) {
  SCOPED_TRACE(
      fmt::format("{} [{}, {}] x {}", tensor::DTypeName(c.compute), c.rows, c.features, c.columns));
  TestDevice device(CpuBackend(), 2, kShape);
  const auto x = RandomValues(c.rows * c.columns, 1, 1, c.compute);
  const auto w = RandomValues(c.features * c.columns, 2, 1, c.compute);
  const auto bias = RandomValues(c.features, 3);
  const DType out_type = c.float_out ? DType::kF32 : c.compute;
  const tensor::View out = device.Zeros(out_type, {c.rows, c.features});
  ops::LinearArgs args{.x = device.Floats(x, c.compute, {c.rows, c.columns}),
                       .weight = device.Weight(w, c.compute, c.features, c.columns),
                       .out = out};
  if (c.bias) args.bias = device.Floats(bias, DType::kF32, {c.features});
  device.Run(device.ops().linear, args);
  const auto got = device.ReadFloats(out);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t feature = 0; feature < c.features; ++feature) {
      double want = c.bias ? bias[feature] : 0;
      double magnitude = std::abs(want);
      for (int64_t i = 0; i < c.columns; ++i) {
        const double product =
            static_cast<double>(x[row * c.columns + i]) * w[feature * c.columns + i];
        want += product;
        magnitude += std::abs(product);
      }
      const double tolerance = static_cast<double>(c.columns + 2) * 0x1p-24 * magnitude +
                               UnitOf(out_type) * std::abs(want);
      ASSERT_NEAR(got[row * c.features + feature], want, tolerance) << row << ", " << feature;
    }
  }
}

TEST_P(ProductTest, AgreesWithPlainLoops) {
  for (const DType type : {DType::kF32, DType::kBf16}) {
    CheckCase({type, 1, 1, 1});
    CheckCase({type, 3, 5, 7, true});
    CheckCase({type, 13, 70, 33, false, true});
    CheckCase({type, 8, 129, 64, true, true});
    CheckCase({type, 29, 200, 128});
    CheckCase({type, 7, 17, 2401, true});  // several passes, odd
    CheckCase({type, 300, 16, 40});        // several row blocks
  }
}

TEST_P(ProductTest, ARowIsTheSameBitsWhateverComesWithIt) {
  constexpr int64_t kRows = 290;
  constexpr int64_t kFeatures = 100;
  constexpr int64_t kColumns = 1100;
  for (const DType type : {DType::kF32, DType::kBf16}) {
    const auto x = RandomValues(kRows * kColumns, 1, 1, type);
    const auto w = RandomValues(kFeatures * kColumns, 2, 1, type);
    std::vector<float> whole;
    for (const int threads : {1, 3}) {
      TestDevice device(CpuBackend(), threads, kShape);
      const tensor::View rows = device.Floats(x, type, {kRows, kColumns});
      const auto* weight = device.Weight(w, type, kFeatures, kColumns);
      for (const int64_t step : {kRows, int64_t{1}, int64_t{7}, int64_t{64}}) {
        const tensor::View out = device.Zeros(DType::kF32, {kRows, kFeatures});
        for (int64_t row = 0; row < kRows; row += step) {
          const int64_t count = std::min(step, kRows - row);
          device.Run(device.ops().linear,
                     {.x = rows.Rows(row, count), .weight = weight, .out = out.Rows(row, count)});
        }
        const auto got = device.ReadFloats(out);
        if (whole.empty()) whole = got;
        ASSERT_EQ(got, whole) << threads << " threads, " << step << " rows at once";
      }
    }
  }
}

TEST_P(ProductTest, ExpertsMultiplyTheirOwnRows) {
  constexpr int64_t kColumns = 48;
  constexpr int64_t kFeatures = 70;
  const std::vector<int32_t> begin = {0, 0, 301, 302, 302, 310};
  const int64_t pairs = begin.back();
  for (const DType type : {DType::kF32, DType::kBf16}) {
    TestDevice device(CpuBackend(), 2, kShape);
    const tensor::View x =
        device.Floats(RandomValues(40 * kColumns, 1, 1, type), type, {40, kColumns});
    std::vector<const ops::PackedWeight*> weights;
    for (uint64_t expert = 0; expert + 1 < begin.size(); ++expert)
      weights.push_back(device.Weight(RandomValues(kFeatures * kColumns, 10 + expert, 1, type),
                                      type, kFeatures, kColumns));
    std::vector<int32_t> source(pairs);
    for (int64_t i = 0; i < pairs; ++i) source[i] = static_cast<int32_t>(i * 7 % 40);
    const tensor::View grouped = device.Zeros(type, {pairs, kFeatures});
    device.Run(device.ops().grouped_linear, {.x = x,
                                             .weights = weights,
                                             .expert_begin = device.Ints(begin, {6}),
                                             .source_rows = device.Ints(source, {pairs}),
                                             .out = grouped});
    const tensor::View gathered = device.Zeros(type, {pairs, kColumns});
    device.Run(device.ops().gather_rows,
               {.x = x, .index = device.Ints(source, {pairs}), .out = gathered});
    const tensor::View alone = device.Zeros(type, {pairs, kFeatures});
    for (uint64_t expert = 0; expert + 1 < begin.size(); ++expert) {
      const int64_t count = begin[expert + 1] - begin[expert];
      device.Run(device.ops().linear, {.x = gathered.Rows(begin[expert], count),
                                       .weight = weights[expert],
                                       .out = alone.Rows(begin[expert], count)});
    }
    EXPECT_EQ(device.ReadFloats(grouped), device.ReadFloats(alone));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ProductTest, testing::ValuesIn(SupportedIsas()), TestName);

}  // namespace
}  // namespace longspan::backend::cpu
