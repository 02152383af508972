// linear, head_linear, grouped_linear.
#include "tests/ops/compare.h"

namespace longspan::op_suite {
namespace {

using support::Magnitudes;
using support::RandomValues;

class LinearTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearTest);
INSTANTIATE_TEST_SUITE_P(, LinearTest, testing::ValuesIn(ComparedBackends()), CaseName);

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t features;
};

constexpr Shape kShapes[] = {
    {1, 1, 1},      {1, 96, 160},  {1, 256, 1024}, {2, 127, 65},  {3, 33, 17},
    {5, 64, 80},    {0, 32, 16},   {16, 32, 16},   {17, 80, 48},  {31, 31, 129},
    {64, 256, 100}, {130, 48, 96}, {7, 1000, 3},   {48, 512, 64},
};

struct Inputs {
  std::vector<float> x;
  std::vector<float> weight;
  std::vector<float> bias;  // or empty

  Inputs Absolute() const { return {Magnitudes(x), Magnitudes(weight), Magnitudes(bias)}; }
};

std::vector<float> Multiply(TestDevice& device, const Shape& shape, const Inputs& inputs,
                            DType compute, DType out_type) {
  const ColumnSlice x(device, inputs.x, compute, shape.columns);
  const std::vector<float> marks(shape.rows * shape.features, ColumnSlice::kMark);
  const ColumnSlice out(device, marks, out_type, shape.features);
  device.Run(
      device.ops().linear,
      {.x = x.view(),
       .weight = device.Weight(inputs.weight, compute, shape.features, shape.columns),
       .bias = inputs.bias.empty() ? ConstView()
                                   : device.Floats(inputs.bias, DType::kF32, {shape.features}),
       .out = out.view()});
  out.ExpectMarks();
  return device.ReadFloats(out.view());
}

void CompareLinear(const BackendCase& c, const Shape& shape, bool with_bias, DType out_type) {
  SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns << " x " << shape.features
                                  << (with_bias ? " with bias" : ""));
  Devices devices(c, {.rows = shape.rows, .max_columns = shape.columns});
  const Inputs inputs = {
      RandomValues(shape.rows * shape.columns, 1, 1, c.compute),
      RandomValues(shape.features * shape.columns, 2, 0.5, c.compute),
      with_bias ? RandomValues(shape.features, 3) : std::vector<float>(),
  };
  const auto got = Multiply(devices.tested, shape, inputs, c.compute, out_type);
  const auto want = Multiply(devices.reference, shape, inputs, DType::kF32, DType::kF32);
  const auto magnitude =
      Multiply(devices.reference, shape, inputs.Absolute(), DType::kF32, DType::kF32);
  ExpectWithin(got, want, [&](int64_t i) {
    // The bias is one more product, with 1.
    return SumOfProducts(want[i], shape.columns + 1, magnitude[i], out_type);
  });
}

TEST_P(LinearTest, MatchesTheReference) {
  for (const Shape& shape : kShapes) {
    CompareLinear(GetParam(), shape, false, GetParam().compute);
    CompareLinear(GetParam(), shape, true, GetParam().compute);
    CompareLinear(GetParam(), shape, false, DType::kF32);
  }
}

TEST_P(LinearTest, StacksPartsOfAnyStoredType) {
  const BackendCase& c = GetParam();
  constexpr int64_t kColumns = 50;
  Devices devices(c, {.rows = 4, .max_columns = kColumns});
  // One part of each stored type; a column slice among them, and values that all of them hold.
  const auto first = RandomValues(19 * (kColumns + 5), 1, 1, DType::kBf16);
  std::vector<tensor::Bf16> second;
  for (const float value : RandomValues(8 * kColumns, 2)) second.push_back(tensor::ToBf16(value));
  std::vector<uint16_t> third;  // of half precision: 0.5 .. 0.75
  for (int i = 0; i < 3 * kColumns; ++i)
    third.push_back(static_cast<uint16_t>(0x3800 + i % 64 * 8));
  const ConstView parts[] = {
      ConstView(first.data(), DType::kF32, {19, kColumns + 5}).Columns(2, kColumns),
      ConstView(second.data(), DType::kBf16, {8, kColumns}),
      ConstView(third.data(), DType::kF16, {3, kColumns}),
  };
  const auto x = RandomValues(4 * kColumns, 3, 1, c.compute);
  const auto multiply = [&](TestDevice& device, DType compute) {
    const ops::PackedWeight* weight = device.Pack(parts, compute);
    EXPECT_EQ(weight->rows(), 30);
    EXPECT_EQ(weight->columns(), kColumns);
    EXPECT_GE(weight->bytes(), 30 * kColumns * tensor::SizeOf(compute));
    const View out = device.Zeros(compute, {4, 30});
    device.Run(
        device.ops().linear,
        {.x = device.Floats(x, compute, {4, kColumns}), .weight = weight, .bias = {}, .out = out});
    return device.ReadFloats(out);
  };
  const auto got = multiply(devices.tested, c.compute);
  const auto want = multiply(devices.reference, DType::kF32);
  // |x| and |w| are at most 1.
  ExpectWithin(got, want,
               [&](int64_t i) { return SumOfProducts(want[i], kColumns, kColumns, c.compute); });
}

std::vector<float> MultiplyHeads(TestDevice& device, const Shape& shape, int64_t heads,
                                 const Inputs& inputs, DType compute) {
  std::vector<const ops::PackedWeight*> weights;
  const int64_t elements = shape.features * shape.columns;
  for (int64_t head = 0; head < heads; ++head)
    weights.push_back(device.Weight(std::span(inputs.weight).subspan(head * elements, elements),
                                    compute, shape.features, shape.columns));
  const ColumnSlice x(device, inputs.x, compute, heads * shape.columns);
  const std::vector<float> marks(shape.rows * heads * shape.features, ColumnSlice::kMark);
  const ColumnSlice out(device, marks, compute, heads * shape.features);
  device.Run(device.ops().head_linear, {.x = x.view().SplitColumns(heads, shape.columns),
                                        .weights = weights,
                                        .out = out.view().SplitColumns(heads, shape.features)});
  out.ExpectMarks();
  return device.ReadFloats(out.view());
}

TEST_P(LinearTest, HeadsMatchTheReference) {
  const DType type = GetParam().compute;
  for (const Shape& shape : kShapes) {
    for (const int64_t heads : {1, 5}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, " << shape.rows << " x " << shape.columns
                                      << " x " << shape.features);
      Devices devices(GetParam(), {.rows = shape.rows, .max_columns = shape.columns});
      const Inputs inputs = {RandomValues(shape.rows * heads * shape.columns, 1, 1, type),
                             RandomValues(heads * shape.features * shape.columns, 2, 0.5, type),
                             {}};
      const auto got = MultiplyHeads(devices.tested, shape, heads, inputs, type);
      const auto want = MultiplyHeads(devices.reference, shape, heads, inputs, DType::kF32);
      const auto magnitude =
          MultiplyHeads(devices.reference, shape, heads, inputs.Absolute(), DType::kF32);
      ExpectWithin(got, want, [&](int64_t i) {
        return SumOfProducts(want[i], shape.columns, magnitude[i], type);
      });
    }
  }
}

// Rows that begin at multiples of 16 bytes, as those of models do: other kernels than for rows that
// do not. With and without --deterministic, that too may choose another one.
TEST_P(LinearTest, AlignedRowsMatchTheReference) {
  const DType type = GetParam().compute;
  for (const Shape& shape : {Shape{1, 64, 128},
                             {5, 136, 72},
                             {64, 512, 100},
                             {130, 256, 520},
                             {70, 1096, 24},
                             {1408, 72, 2824}}) {
    SCOPED_TRACE(testing::Message()
                 << shape.rows << " x " << shape.columns << " x " << shape.features);
    Devices devices(GetParam(), {.rows = shape.rows, .max_columns = shape.columns});
    const Inputs inputs = {RandomValues(shape.rows * shape.columns, 1, 1, type),
                           RandomValues(shape.features * shape.columns, 2, 0.5, type),
                           {}};
    const auto want = Multiply(devices.reference, shape, inputs, DType::kF32, DType::kF32);
    const auto magnitude =
        Multiply(devices.reference, shape, inputs.Absolute(), DType::kF32, DType::kF32);
    TestDevice& device = devices.tested;
    const auto* weight = device.Weight(inputs.weight, type, shape.features, shape.columns);
    const View x = device.Floats(inputs.x, type, {shape.rows, shape.columns});
    for (const bool deterministic : {true, false}) {
      for (const DType out_type : {type, DType::kF32}) {
        device.context().deterministic = deterministic;
        const std::vector<float> marks(shape.rows * shape.features, ColumnSlice::kMark);
        const View out = device.Floats(marks, out_type, {shape.rows, shape.features});
        device.Run(device.ops().linear, {.x = x, .weight = weight, .bias = {}, .out = out});
        ExpectWithin(device.ReadFloats(out), want, [&](int64_t i) {
          return SumOfProducts(want[i], shape.columns, magnitude[i], out_type);
        });
      }
    }
  }
}

struct Groups {
  std::vector<int32_t> begin;
  std::vector<int32_t> source_rows;  // or empty
  int64_t x_rows;
  bool aligned = false;  // rows begin at multiples of 16 bytes
};

std::vector<float> MultiplyGroups(TestDevice& device, const Shape& shape, const Inputs& inputs,
                                  const Groups& groups, DType compute) {
  const auto experts = static_cast<int64_t>(groups.begin.size()) - 1;
  std::vector<const ops::PackedWeight*> weights;
  const int64_t elements = shape.features * shape.columns;
  for (int64_t expert = 0; expert < experts; ++expert)
    weights.push_back(device.Weight(std::span(inputs.weight).subspan(expert * elements, elements),
                                    compute, shape.features, shape.columns));
  const ColumnSlice slice(device, inputs.x, compute, shape.columns);
  const View out = device.Zeros(compute, {shape.rows, shape.features});
  device.Run(
      device.ops().grouped_linear,
      {.x = groups.aligned ? device.Floats(inputs.x, compute, {groups.x_rows, shape.columns})
                           : slice.view(),
       .weights = weights,
       .expert_begin = device.Ints(groups.begin, {experts + 1}),
       .source_rows =
           groups.source_rows.empty() ? ConstView() : device.Ints(groups.source_rows, {shape.rows}),
       .out = out});
  return device.ReadFloats(out);
}

void CompareGroups(const BackendCase& c, const Shape& shape, const Groups& groups) {
  const auto experts = static_cast<int64_t>(groups.begin.size()) - 1;
  SCOPED_TRACE(testing::Message() << experts << " experts, " << shape.rows << " pairs");
  Devices devices(c, {.rows = groups.x_rows,
                      .max_columns = shape.columns,
                      .experts = experts,
                      .experts_per_token = 4});
  const Inputs inputs = {RandomValues(groups.x_rows * shape.columns, 1, 1, c.compute),
                         RandomValues(experts * shape.features * shape.columns, 2, 1, c.compute),
                         {}};
  const auto got = MultiplyGroups(devices.tested, shape, inputs, groups, c.compute);
  const auto want = MultiplyGroups(devices.reference, shape, inputs, groups, DType::kF32);
  const auto magnitude =
      MultiplyGroups(devices.reference, shape, inputs.Absolute(), groups, DType::kF32);
  ExpectWithin(got, want, [&](int64_t i) {
    return SumOfProducts(want[i], shape.columns, magnitude[i], c.compute);
  });
}

TEST_P(LinearTest, GroupsMatchTheReference) {
  const auto rows = [](int64_t pairs, int64_t x_rows) {
    std::vector<int32_t> source_rows;
    for (int64_t i = 0; i < pairs; ++i) source_rows.push_back(static_cast<int32_t>(i * 7 % x_rows));
    return source_rows;
  };
  // Empty experts at both ends and inside; a group of one, and one longer than any tile.
  CompareGroups(GetParam(), {80, 40, 36}, {{0, 0, 1, 70, 70, 78, 80, 80}, rows(80, 20), 20});
  // One expert with all tokens, another with none.
  CompareGroups(GetParam(), {33, 96, 64}, {{0, 33, 33}, rows(33, 33), 33});
  CompareGroups(GetParam(), {9, 17, 130}, {{0, 9}, {}, 9});
  // In the sorted order already.
  CompareGroups(GetParam(), {12, 64, 20}, {{0, 5, 12}, {}, 12});
  CompareGroups(GetParam(), {4, 256, 512}, {{0, 1, 1, 2, 2, 3, 4, 4, 4}, {0, 0, 0, 0}, 1});
  CompareGroups(GetParam(), {0, 16, 16}, {{0, 0, 0}, {}, 0});
  CompareGroups(GetParam(), {80, 40, 36}, {{0, 0, 1, 70, 70, 78, 80, 80}, rows(80, 20), 20, true});
  CompareGroups(GetParam(), {300, 136, 264},
                {{0, 0, 1, 66, 195, 195, 300}, rows(300, 90), 90, true});
  CompareGroups(GetParam(), {300, 64, 72}, {{0, 299, 300}, {}, 300, true});
  // More experts than a launch may take at once.
  std::vector<int32_t> many = {0};
  for (int expert = 0; expert < 259; ++expert) many.push_back(many.back() + expert % 3);
  const int64_t pairs = many.back();
  CompareGroups(GetParam(), {pairs, 24, 40}, {many, rows(pairs, 50), 50, true});
}

}  // namespace
}  // namespace longspan::op_suite
