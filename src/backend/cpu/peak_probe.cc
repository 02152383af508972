#include "backend/cpu/peak_probe.h"

#include <algorithm>
#include <atomic>

#include "backend/cpu/isa.h"
#include "base/clock.h"

namespace longspan::backend::cpu {
namespace {

// Rounds are short, so that some of them pass undisturbed on a machine that others use too.
constexpr double kRoundSeconds = 2e-3;
// Long enough that reading the clock does not matter.
constexpr double kSliceSeconds = 5e-5;

// GFLOP/s of one round: every thread repeats slices until the time is over.
double MeasureRound(tensor::ThreadPool& pool, double (*loop)(int64_t), int64_t iterations,
                    double seconds) {
  const base::Clock& clock = base::SteadyClock();
  std::atomic<double> operations{0};
  std::atomic<int> arrived{0};
  const int threads = pool.threads();
  pool.ParallelFor(threads, [&](int64_t, int) {
    // All start together; a thread that took no task yet has one waiting for it.
    arrived.fetch_add(1);
    while (arrived.load() < threads) {
    }
    const auto start = clock.Now();
    double own = 0;
    while (base::Seconds(clock.Now() - start) < seconds) own += loop(iterations);
    operations.fetch_add(own / base::Seconds(clock.Now() - start));
  });
  return operations.load() * 1e-9;
}

double MeasureLoop(tensor::ThreadPool& pool, double (*loop)(int64_t), double seconds) {
  const base::Clock& clock = base::SteadyClock();
  int64_t iterations = 256;
  for (double taken = 0; taken < kSliceSeconds; iterations *= 2) {
    const auto begin = clock.Now();
    loop(iterations);
    taken = base::Seconds(clock.Now() - begin);
  }
  double best = 0;
  const auto start = clock.Now();
  do {
    best = std::max(best, MeasureRound(pool, loop, iterations, kRoundSeconds));
  } while (base::Seconds(clock.Now() - start) < seconds);
  return best;
}

}  // namespace

PeakRate MeasurePeak(tensor::ThreadPool& pool, double seconds) {
  const KernelTable& kernels = ActiveKernels();
  PeakRate peak;
  peak.bf16_gflops = MeasureLoop(pool, kernels.peak[kBfloat], seconds / 2);
  peak.f32_gflops = MeasureLoop(pool, kernels.peak[kFloat], seconds / 2);
  return peak;
}

}  // namespace longspan::backend::cpu
