// What the backend accepts, its choice of instruction set, sampling at the size of a real
// vocabulary, and the peak probe.
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/isa_test_fixture.h"
#include "backend/cpu/peak_probe.h"
#include "ops/counter_random.h"
#include "tests/support/random_values.h"
#include "tests/support/sampling_rows.h"
#include "tests/support/test_device.h"

namespace longspan::backend::cpu {
namespace {

using support::RandomValues;
using support::TestDevice;
using tensor::DType;
using testing::HasSubstr;

TEST(CpuBackendTest, SaysWhatItHas) {
  EXPECT_EQ(CpuBackend().name(), "cpu");
  for (const DType compute : {DType::kF32, DType::kBf16})
    for (const DType cache : {DType::kF32, DType::kBf16})
      EXPECT_TRUE(CpuBackend().CheckTypes(compute, cache).ok());
  EXPECT_THAT(CpuBackend().CheckTypes(DType::kF16, DType::kF32).message(), HasSubstr("--dtype"));
  EXPECT_THAT(CpuBackend().CheckTypes(DType::kF32, DType::kU8).message(),
              HasSubstr("--kv-cache-dtype"));
  EXPECT_EQ(CpuBackend().CreateQueue({.threads = 0}).status().code(),
            base::StatusCode::kInvalidArgument);
}

TEST(CpuBackendTest, RefusesWeightsThatItCannotPack) {
  const std::vector<int32_t> ids(4);
  const std::vector<float> values(6);
  const tensor::ConstView ints(ids.data(), DType::kI32, {2, 2});
  const tensor::ConstView narrow(values.data(), DType::kF32, {2, 2});
  const tensor::ConstView wide(values.data(), DType::kF32, {2, 3});
  const auto pack = [](std::initializer_list<tensor::ConstView> parts, DType compute) {
    return CpuBackend().Pack({.parts = {parts.begin(), parts.size()}, .compute = compute}).status();
  };
  EXPECT_TRUE(pack({narrow, narrow}, DType::kBf16).ok());
  EXPECT_EQ(pack({}, DType::kF32).code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(pack({narrow, wide}, DType::kF32).code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(pack({ints}, DType::kF32).code(), base::StatusCode::kUnimplemented);
  EXPECT_EQ(pack({narrow}, DType::kF16).code(), base::StatusCode::kUnimplemented);
}

TEST(CpuBackendTest, PacksStackedHalfPrecision) {
  // 1, -2, 0.5 and 65504 in f16; then bf16 rows.
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x3800, 0x7bff};
  const std::vector<tensor::Bf16> bfloats = {tensor::ToBf16(3), tensor::ToBf16(-1)};
  const std::vector<tensor::ConstView> parts = {
      tensor::ConstView(halves.data(), DType::kF16, {2, 2}),
      tensor::ConstView(bfloats.data(), DType::kBf16, {1, 2})};
  TestDevice device(CpuBackend(), 1, {.rows = 2});
  const auto* weight = device.Pack(parts, DType::kF32);
  const tensor::View out = device.Zeros(DType::kF32, {2, 3});
  const std::vector<float> identity = {1, 0, 0, 1};
  device.Run(device.ops().linear,
             {.x = device.Floats(identity, DType::kF32, {2, 2}), .weight = weight, .out = out});
  EXPECT_EQ(device.ReadFloats(out), (std::vector<float>{1, 0.5f, 3, -2, 65504, -1}));
}

TEST(IsaChoiceTest, TheBestIsTakenUnlessAskedOtherwise) {
  const Isa active = ActiveIsa();
  EXPECT_TRUE(IsaSupported(active));
  EXPECT_EQ(ActiveKernels().name, IsaName(active));
  if (std::getenv("LONGSPAN_CPU_ISA") != nullptr) return;
  const std::vector<Isa> supported = SupportedIsas();
  if (supported.back() == Isa::kAvx512Bf16) {
    EXPECT_THAT(active, testing::AnyOf(Isa::kAvx512, Isa::kAvx512Bf16));
  } else {
    EXPECT_EQ(active, supported.back());
  }
}

// Top-p sorts only as far as it must: against a full sort.
TEST(CpuSamplingTest, TopPKeepsTheSmallestSetThatReachesIt) {
  constexpr int64_t kVocab = 20000;
  auto logits = RandomValues(kVocab, 1, 4);
  std::vector<int32_t> order(kVocab);
  for (int32_t i = 0; i < kVocab; ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (const double top_p : {0.001, 0.05, 0.5, 0.95}) {
    double all = 0;
    for (const float logit : logits) all += std::exp(static_cast<double>(logit));
    int64_t kept = 0;
    for (double sum = 0; sum < static_cast<float>(top_p) * all; ++kept)
      sum += std::exp(static_cast<double>(logits[order[kept]]));
    TestDevice device(CpuBackend(), 1, {.rows = 1, .logit_rows = 1, .vocab_size = kVocab});
    for (int64_t position = 0; position < 20; ++position) {
      const support::SamplingRow row{.spec = {.temperature = 1, .top_p = top_p, .seed = 7},
                                     .position = position};
      int32_t want = order[0];
      double best = -1e300;
      for (int64_t i = 0; i < kept; ++i) {
        const double uniform = ops::CounterUniform(7, position, order[i]);
        const double value = logits[order[i]] - std::log(-std::log(uniform));
        if (value > best) {
          best = value;
          want = order[i];
        }
      }
      const auto sampled = support::SampleRows(device, logits, std::span(&row, 1));
      EXPECT_EQ(sampled.tokens[0], want) << top_p << " at " << position;
    }
  }
}

class PeakProbeTest : public IsaTest {};

TEST_P(PeakProbeTest, MeasuresSomething) {
  tensor::ThreadPool pool({.threads = 2});
  const PeakRate peak = MeasurePeak(pool, 0.01);
  EXPECT_GT(peak.f32_gflops, 0.01);
  EXPECT_GT(peak.bf16_gflops, 0.01);
  EXPECT_LT(peak.f32_gflops, 1e5);
}

INSTANTIATE_TEST_SUITE_P(Isa, PeakProbeTest, testing::ValuesIn(SupportedIsas()), TestName);

}  // namespace
}  // namespace longspan::backend::cpu
