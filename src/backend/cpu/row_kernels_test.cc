// The kernels that go over rows, on every instruction set that the machine has.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "backend/cpu/isa_test_fixture.h"
#include "tensor/dtype.h"
#include "tests/support/random_values.h"

namespace longspan::backend::cpu {
namespace {

using support::RandomValues;
using tensor::Bf16;
using tensor::ToBf16;
using tensor::ToFloat;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RowKernelsTest : public IsaTest {};

TEST_P(RowKernelsTest, ConvertRoundsToNearestEven) {
  std::vector<float> values = RandomValues(77, 1, 1e3);
  // Ties to even both ways, overflow, signed zeros, infinities, NaN.
  for (const float special : {1.00390625f, 1.01171875f, 3.4e38f, 0.0f, -0.0f, kInfinity, -kInfinity,
                              std::numeric_limits<float>::quiet_NaN()})
    values.push_back(special);
  std::vector<Bf16> rounded(values.size());
  ActiveKernels().convert[kFloat][kBfloat](values.data(), rounded.data(), values.size());
  std::vector<float> widened(values.size());
  ActiveKernels().convert[kBfloat][kFloat](rounded.data(), widened.data(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(widened[i]));
    } else {
      EXPECT_EQ(rounded[i].bits, ToBf16(values[i]).bits) << values[i];
      EXPECT_EQ(widened[i], ToFloat(rounded[i])) << values[i];
    }
  }
}

// Through silu with up = 1: x / (1 + e^-x).
TEST_P(RowKernelsTest, SiluIsAccurateOverTheWholeRange) {
  std::vector<float> gate;
  for (float x = -120; x < 120; x += 0.37f) gate.push_back(x);
  gate.push_back(0);
  const std::vector<float> up(gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  const auto n = static_cast<int64_t>(gate.size());
  ActiveKernels().silu_mul[kFloat](gate.data(), up.data(), n, out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double want = gate[i] / (1 + std::exp(-static_cast<double>(gate[i])));
    // 2 units of the exponential and 3 roundings; below e^-87 results sink into subnormals and 0.
    EXPECT_NEAR(out[i], want, 6 * 0x1p-24 * std::abs(want) + 1e-36) << gate[i];
  }
}

TEST_P(RowKernelsTest, ExpSumOfAnyLengthAndOfOddLogits) {
  for (const int64_t n : {1, 3, 16, 100, 5000}) {
    const auto x = RandomValues(n, n, 20);
    float max = 0;
    double sum = 0;
    ActiveKernels().exp_sum(x.data(), n, &max, &sum);
    double want = 0;
    for (const float v : x) want += std::exp(static_cast<double>(v) - max);
    EXPECT_EQ(max, *std::max_element(x.begin(), x.end()));
    EXPECT_NEAR(sum, want, 70 * 0x1p-24 * want) << n;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& odd :
       {std::vector<float>{nan, 1, -kInfinity, 1}, std::vector<float>(20, nan)}) {
    float max = 0;
    double sum = 0;
    ActiveKernels().exp_sum(odd.data(), static_cast<int64_t>(odd.size()), &max, &sum);
    if (odd.size() == 4) {
      EXPECT_EQ(max, 1);
      EXPECT_EQ(sum, 2);
    } else {
      EXPECT_EQ(max, -kInfinity);
    }
  }
}

TEST_P(RowKernelsTest, RmsNormAndCombineHandleTails) {
  for (const int64_t n : {1, 7, 16, 33, 100}) {
    const auto x = RandomValues(2 * n, 1);
    const auto weight = RandomValues(n, 2);
    std::vector<float> out(n);
    ActiveKernels().rms_norm[kFloat](x.data(), weight.data(), 1e-5, n, out.data());
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(out[i], x[i] * factor * weight[i], 1e-6) << n;

    const int32_t places[] = {1, 0, 1};
    const float weights[] = {0.5f, 2, 0.25f};
    ActiveKernels().combine[kFloat]({.x = reinterpret_cast<const char*>(x.data()),
                                     .x_stride = n * 4,
                                     .places = places,
                                     .weights = weights,
                                     .terms = 3,
                                     .columns = n,
                                     .out = reinterpret_cast<char*>(out.data())});
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(out[i], 0.75 * x[n + i] + 2 * x[i], 1e-6) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RowKernelsTest, testing::ValuesIn(SupportedIsas()), TestName);

}  // namespace
}  // namespace longspan::backend::cpu
