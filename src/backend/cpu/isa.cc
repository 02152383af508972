#include "backend/cpu/isa.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/check.h"
#include "base/clock.h"

namespace longspan::backend::cpu {
namespace {

constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

const KernelTable& KernelsOf(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable:
      return kPortableKernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
    case Isa::kAvx512:
      return kAvx512Kernels;
    case Isa::kAvx512Bf16:
      return kAvx512Bf16Kernels;
  }
#endif
  (void)isa;
  return kPortableKernels;
}

// Operations per second of a short stretch of a loop.
double PeakOf(double (*loop)(int64_t)) {
  constexpr int64_t kIterations = 2048;
  const base::Clock& clock = base::SteadyClock();
  const auto begin = clock.Now();
  const double operations = loop(kIterations);
  return operations / base::Seconds(clock.Now() - begin);
}

// Whether the cores multiply pairs of bf16 faster than floats that were bf16: Zen 4 does so twice
// as fast, Sapphire Rapids half as fast. In turns, and of each the best, so that neither a clock
// that changes nor a neighbour can make up for a factor of two.
bool MultipliesPairsFaster() {
  constexpr int kRounds = 12;
  double pairs = 0;
  double floats = 0;
  for (int round = 0; round < kRounds; ++round) {
    pairs = std::max(pairs, PeakOf(KernelsOf(Isa::kAvx512Bf16).peak[kBfloat]));
    floats = std::max(floats, PeakOf(KernelsOf(Isa::kAvx512).peak[kBfloat]));
  }
  return pairs > floats;
}

Isa BestIsa() {
  Isa best = Isa::kPortable;
  for (const Isa isa : kIsas)
    if (IsaSupported(isa)) best = isa;
  if (best == Isa::kAvx512Bf16 && !MultipliesPairsFaster()) best = Isa::kAvx512;
  return best;
}

struct Choice {
  Isa isa = BestIsa();
  base::Status status;
};

Choice ReadChoice() {
  Choice choice;
  const char* value = std::getenv("LONGSPAN_CPU_ISA");
  if (value == nullptr || *value == '\0') return choice;
  for (const Isa isa : kIsas) {
    if (IsaName(isa) != value) continue;
    if (IsaSupported(isa)) {
      choice.isa = isa;
    } else {
      choice.status = base::InvalidArgument(
          "LONGSPAN_CPU_ISA is {}, which this machine lacks; the best it has is {}", value,
          IsaName(BestIsa()));
    }
    return choice;
  }
  choice.status = base::InvalidArgument(
      "LONGSPAN_CPU_ISA is \"{}\": use portable, avx2, avx512 or avx512bf16", value);
  return choice;
}

const Choice& EnvironmentChoice() {
  static const Choice choice = ReadChoice();
  return choice;
}

std::atomic<Isa>& Active() {
  static std::atomic<Isa> active{EnvironmentChoice().isa};
  return active;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "unknown";
}

bool IsaSupported(Isa isa) {
  if (isa == Isa::kPortable) return true;
#if defined(__x86_64__)
  // These ask the operating system too (XGETBV).
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (isa == Isa::kAvx2) return avx2;
  if (isa == Isa::kAvx512) return avx512;
  return avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

Isa ActiveIsa() { return Active().load(std::memory_order_relaxed); }

base::Status CheckIsaChoice() { return EnvironmentChoice().status; }

const KernelTable& ActiveKernels() { return KernelsOf(ActiveIsa()); }

void SetIsaForTest(Isa isa) {
  LONGSPAN_CHECK(IsaSupported(isa), "the machine lacks {}", IsaName(isa));
  Active().store(isa, std::memory_order_relaxed);
}

}  // namespace longspan::backend::cpu
