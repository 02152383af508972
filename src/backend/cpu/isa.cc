#include "backend/cpu/isa.h"

#include <atomic>
#include <cstdlib>

#include "base/check.h"

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

// By the processor and not by a measurement, so that all ranks of a host choose alike. Zen 4
// multiplies pairs of bf16 twice as fast as it multiplies floats, Intel's Emerald Rapids half as
// fast.
bool MultipliesPairsSlowly() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

Isa BestIsa() {
  Isa best = Isa::kPortable;
  for (const Isa isa : kIsas)
    if (IsaSupported(isa)) best = isa;
  if (best == Isa::kAvx512Bf16 && MultipliesPairsSlowly()) best = Isa::kAvx512;
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
