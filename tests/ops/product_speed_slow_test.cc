// The CPU backend's products of many rows keep the machine's multipliers busy. Results alone do not
// show a sum that the compiler has put on the stack.
#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/peak_probe.h"
#include "tests/support/random_values.h"
#include "tests/support/test_device.h"

namespace longspan::testing {
namespace {

using std::chrono::steady_clock;
using support::RandomValues;
using tensor::DType;

constexpr int64_t kRows = 512;
constexpr int64_t kColumns = 576;
constexpr int64_t kFeatures = 768;
constexpr int kRounds = 30;

double Seconds(steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Both in turns, and of both the best: a neighbour takes a core for longer than a round.
TEST(ProductSpeedTest, IsNearThePeak) {
  support::TestDevice device(backend::cpu::CpuBackend(), 1,
                             {.rows = kRows, .max_columns = kColumns});
  tensor::ThreadPool pool({.threads = 1});
  for (const DType type : {DType::kBf16, DType::kF32}) {
    const tensor::View x =
        device.Floats(RandomValues(kRows * kColumns, 1, 1, type), type, {kRows, kColumns});
    const auto* weight =
        device.Weight(RandomValues(kFeatures * kColumns, 2, 1, type), type, kFeatures, kColumns);
    const tensor::View out = device.Zeros(type, {kRows, kFeatures});
    double speed = 0;
    double peak = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = steady_clock::now();
      device.Run(device.ops().linear, {.x = x, .weight = weight, .out = out});
      const double taken = Seconds(steady_clock::now() - begin);
      speed = std::max(speed, 2e-9 * kRows * kColumns * kFeatures / taken);
      const auto rate = backend::cpu::MeasurePeak(pool, 0.02);
      peak = std::max(peak, type == DType::kBf16 ? rate.bf16_gflops : rate.f32_gflops);
    }
    fmt::print("{}: {:.1f} of {:.1f} GFLOP/s, {:.1f}%\n", tensor::DTypeName(type), speed, peak,
               100 * speed / peak);
    // A sum on the stack takes a quarter of the speed.
    if (backend::cpu::ActiveIsa() != backend::cpu::Isa::kAvx2)
      GTEST_SKIP() << "what is reached was measured with AVX2";
    EXPECT_GT(speed, 0.7 * peak) << tensor::DTypeName(type);
    // Else it is the probe that is slow.
    EXPECT_LT(speed, 1.02 * peak) << tensor::DTypeName(type);
  }
}

}  // namespace
}  // namespace longspan::testing
