// Ops that take every row by itself: embedding, gather_rows, rms_norm, layer_norm, add, silu_mul,
// rope.
#include "tests/ops/compare.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;

class RowsTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RowsTest);
INSTANTIATE_TEST_SUITE_P(, RowsTest, testing::ValuesIn(ComparedBackends()), CaseName);

TEST_P(RowsTest, EmbeddingCopiesRows) {
  const DType type = GetParam().compute;
  for (const int64_t hidden : {1, 33, 96, 256}) {
    Devices devices(GetParam(), {.rows = 5});
    const auto table = RandomValues(40 * hidden, 1, 1, type);
    const std::vector<int32_t> tokens = {39, 0, 7, 7, 38};
    const auto run = [&](TestDevice& device, DType table_type, DType out_type) {
      const View out = device.Zeros(out_type, {5, hidden});
      device.Run(device.ops().embedding, {.table = device.Floats(table, table_type, {40, hidden}),
                                          .tokens = device.Ints(tokens, {5}),
                                          .out = out});
      return device.ReadFloats(out);
    };
    const auto want = run(devices.reference, DType::kF32, DType::kF32);
    EXPECT_EQ(run(devices.tested, type, type), want);
  }
}

// Where a head can be the embedding too.
TEST_P(RowsTest, EmbeddingCopiesRowsOfPackedWeights) {
  const DType type = GetParam().compute;
  for (const int64_t hidden : {1, 33, 96, 576, 1030}) {
    Devices devices(GetParam(), {.rows = 5});
    const auto table = RandomValues(140 * hidden, 1, 1, type);
    const std::vector<int32_t> tokens = {139, 0, 7, 64, 63};
    const ops::PackedWeight* weight = devices.tested.Weight(table, type, 140, hidden);
    if (!weight->is_table()) GTEST_SKIP() << "this backend looks no rows of packed weights up";
    const View copied = devices.tested.Zeros(type, {5, hidden});
    devices.tested.Run(
        devices.tested.ops().embedding,
        {.packed = weight, .tokens = devices.tested.Ints(tokens, {5}), .out = copied});
    const std::vector<float> rows = devices.tested.ReadFloats(copied);
    for (size_t row = 0; row < tokens.size(); ++row)
      for (int64_t i = 0; i < hidden; ++i)
        ASSERT_EQ(rows[static_cast<int64_t>(row) * hidden + i], table[tokens[row] * hidden + i])
            << hidden << " " << row << " " << i;
  }
}

TEST_P(RowsTest, GatherCopiesRows) {
  const DType type = GetParam().compute;
  for (const int64_t columns : {1, 31, 128}) {
    Devices devices(GetParam(), {.rows = 9});
    const auto x = RandomValues(9 * columns, 1, 1, type);
    const std::vector<int32_t> index = {8, 0, 3, 3};
    const auto run = [&](TestDevice& device, DType out_type) {
      const ColumnSlice from(device, x, out_type, columns);
      const View out = device.Zeros(out_type, {4, columns});
      device.Run(device.ops().gather_rows,
                 {.x = from.view(), .index = device.Ints(index, {4}), .out = out});
      return device.ReadFloats(out);
    };
    EXPECT_EQ(run(devices.tested, type), run(devices.reference, DType::kF32));
  }
}

TEST_P(RowsTest, AddMatchesTheReference) {
  const DType type = GetParam().compute;
  for (const int64_t columns : {1, 17, 96, 1000}) {
    Devices devices(GetParam(), {.rows = 6});
    const auto x = RandomValues(6 * columns, 1, 1, type);
    const auto y = RandomValues(6 * columns, 2, 4, type);
    const auto run = [&](TestDevice& device, DType t) {
      const ColumnSlice sum(device, x, t, columns);
      const ColumnSlice other(device, y, t, columns);
      device.Run(device.ops().add, {.x = sum.view(), .y = other.view()});
      sum.ExpectMarks();
      return device.ReadFloats(sum.view());
    };
    const auto want = run(devices.reference, DType::kF32);
    ExpectWithin(run(devices.tested, type), want,
                 [&](int64_t i) { return Rounded(want[i], kUnitF32 * std::abs(want[i]), type); });
  }
}

TEST_P(RowsTest, RmsNormMatchesTheReference) {
  const DType type = GetParam().compute;
  for (const int64_t d : {1, 16, 31, 80, 128, 2048}) {
    for (const int64_t heads : {0, 1, 3}) {  // 0: a matrix
      SCOPED_TRACE(testing::Message() << heads << " heads of " << d);
      constexpr int64_t kRows = 7;
      Devices devices(GetParam(), {.rows = kRows, .heads = heads, .head_dim = d});
      // Large and small rows; a row of zeros stays one.
      const int64_t width = std::max<int64_t>(heads, 1) * d;
      auto x = RandomValues(kRows * width, 1, 1, type);
      for (int64_t i = 0; i < width; ++i) {
        x[i] *= 0x1p-20f;
        x[width + i] *= 0x1p20f;
        x[2 * width + i] = 0;
      }
      const auto weight = RandomValues(d, 2, 2);
      const auto run = [&](TestDevice& device, DType t, bool in_place) {
        const ColumnSlice from(device, x, t, width);
        const ColumnSlice to(device, x, t, width);
        const auto shaped = [&](const View& view) {
          return heads == 0 ? view : view.SplitColumns(heads, d);
        };
        const View out = shaped(in_place ? from.view() : to.view());
        device.Run(device.ops().rms_norm, {.x = shaped(from.view()),
                                           .weight = device.Floats(weight, DType::kF32, {d}),
                                           .epsilon = 1e-6,
                                           .out = out});
        (in_place ? from : to).ExpectMarks();
        return device.ReadFloats(out);
      };
      const auto want = run(devices.reference, DType::kF32, false);
      const auto bound = [&](int64_t i) { return RmsNorm(want[i], d, type); };
      ExpectWithin(run(devices.tested, type, false), want, bound);
      ExpectWithin(run(devices.tested, type, true), want, bound);
    }
  }
}

TEST_P(RowsTest, LayerNormMatchesTheReference) {
  const DType type = GetParam().compute;
  for (const int64_t d : {1, 16, 31, 80, 128, 2048}) {
    SCOPED_TRACE(d);
    constexpr int64_t kRows = 5;
    Devices devices(GetParam(), {.rows = kRows});
    auto x = RandomValues(kRows * d, 1, 1, type);
    // Rows of small numbers, and of one number; a mean far above the deviation.
    for (int64_t i = 0; i < d; ++i) {
      x[i] *= 0x1p-20f;
      x[d + i] = 3;
      x[2 * d + i] = 128 + std::round(4 * x[2 * d + i]);
    }
    const auto weight = RandomValues(d, 2, 2);
    const auto bias = RandomValues(d, 3, 2);
    const auto run = [&](TestDevice& device, DType t, bool in_place, bool with_bias) {
      const ColumnSlice from(device, x, t, d);
      const ColumnSlice to(device, x, t, d);
      const View out = (in_place ? from : to).view();
      device.Run(device.ops().layer_norm, {.x = from.view(),
                                           .weight = device.Floats(weight, DType::kF32, {d}),
                                           .bias = with_bias ? device.Floats(bias, DType::kF32, {d})
                                                             : device.Zeros(DType::kF32, {d}),
                                           .epsilon = 1e-6,
                                           .out = out});
      (in_place ? from : to).ExpectMarks();
      return device.ReadFloats(out);
    };
    const auto want = run(devices.reference, DType::kF32, false, true);
    const auto scaled = run(devices.reference, DType::kF32, false, false);
    std::vector<double> spread(kRows);
    for (int64_t i = 0; i < kRows * d; ++i)
      spread[i / d] = std::max<double>(spread[i / d], std::abs(scaled[i] / weight[i % d]));
    const auto bound = [&](int64_t i) {
      return LayerNorm(want[i], scaled[i], weight[i % d], spread[i / d], d, type);
    };
    ExpectWithin(run(devices.tested, type, false, true), want, bound);
    ExpectWithin(run(devices.tested, type, true, true), want, bound);
  }
}

TEST_P(RowsTest, SiluMulMatchesTheReference) {
  const DType type = GetParam().compute;
  for (const int64_t columns : {1, 15, 160, 512}) {
    Devices devices(GetParam(), {.rows = 5});
    auto gate_up = RandomValues(5 * 2 * columns, 1, 8, type);
    // Where the exponential overflows, and where it vanishes.
    gate_up[0] = -200;
    gate_up[2 * columns] = 200;
    gate_up[4 * columns] = 0;
    const auto run = [&](TestDevice& device, DType t) {
      const ColumnSlice from(device, gate_up, t, 2 * columns);
      const View out = device.Zeros(t, {5, columns});
      device.Run(device.ops().silu_mul, {.gate_up = from.view(), .out = out});
      return device.ReadFloats(out);
    };
    // Over the gate itself.
    const auto run_in_place = [&](TestDevice& device, DType t) {
      const ColumnSlice both(device, gate_up, t, 2 * columns);
      const View out = both.view().Columns(0, columns);
      device.Run(device.ops().silu_mul, {.gate_up = both.view(), .out = out});
      return device.ReadFloats(out);
    };
    EXPECT_EQ(run_in_place(devices.tested, type), run(devices.tested, type));
    const auto want = run(devices.reference, DType::kF32);
    ExpectWithin(run(devices.tested, type), want, [&](int64_t i) {
      return SiluMul(want[i], gate_up[i / columns * 2 * columns + i % columns], type);
    });
  }
}

struct Tables {
  std::vector<float> cosines;
  std::vector<float> sines;
};

// Rows far into a long context among them.
const std::vector<int32_t> kPositions = {0, 1, 2, 63, 64, 4095, 131071, 1048575};

Tables MakeTables(TestDevice& device, int64_t pairs) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < pairs; ++i)
    frequencies.push_back(
        static_cast<float>(std::pow(1e6, -static_cast<double>(i) / static_cast<double>(pairs))));
  const auto rows = static_cast<int64_t>(kPositions.size());
  const View cosines = device.Zeros(DType::kF32, {rows, pairs});
  const View sines = device.Zeros(DType::kF32, {rows, pairs});
  device.Run(device.ops().rope_table,
             {.positions = device.Ints(kPositions, {rows}),
              .inverse_frequencies = device.Floats(frequencies, DType::kF32, {pairs}),
              .cosines = cosines,
              .sines = sines});
  return {device.ReadFloats(cosines), device.ReadFloats(sines)};
}

TEST_P(RowsTest, RopeTableMatchesTheReference) {
  for (const int64_t pairs : {8, 32, 40, 64, 33}) {
    Devices devices(GetParam(), {.rows = 8, .head_dim = 2 * pairs});
    const Tables got = MakeTables(devices.tested, pairs);
    const Tables want = MakeTables(devices.reference, pairs);
    const auto bound = [](int64_t) { return kRopeTableError; };
    ExpectWithin(got.cosines, want.cosines, bound);
    ExpectWithin(got.sines, want.sines, bound);
  }
}

TEST_P(RowsTest, RopeMatchesTheReference) {
  const DType type = GetParam().compute;
  const auto rows = static_cast<int64_t>(kPositions.size());
  for (const spec::RopePairs kind : {spec::RopePairs::kHalfSplit, spec::RopePairs::kInterleaved}) {
    for (const int64_t dim : {2, 16, 64, 80, 128, 66}) {
      SCOPED_TRACE(testing::Message() << "dim " << dim << ", pairs " << static_cast<int>(kind));
      constexpr int64_t kHeads = 3;
      Devices devices(GetParam(), {.rows = rows, .heads = kHeads, .head_dim = dim});
      const Tables tables = MakeTables(devices.reference, dim / 2);
      const auto x = RandomValues(rows * kHeads * dim, 1, 1, type);
      const auto run = [&](TestDevice& device, DType t) {
        const ColumnSlice slice(device, x, t, kHeads * dim);
        device.Run(device.ops().rope,
                   {.x = slice.view().SplitColumns(kHeads, dim),
                    .cosines = device.Floats(tables.cosines, DType::kF32, {rows, dim / 2}),
                    .sines = device.Floats(tables.sines, DType::kF32, {rows, dim / 2}),
                    .pairs = kind});
        slice.ExpectMarks();
        return device.ReadFloats(slice.view());
      };
      const auto want = run(devices.reference, DType::kF32);
      // |a|, |b|, |cos| and |sin| are at most 1.
      ExpectWithin(run(devices.tested, type), want,
                   [&](int64_t i) { return Rope(want[i], 2, type); });
    }
  }
}

}  // namespace
}  // namespace longspan::op_suite
