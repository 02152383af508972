// Which instruction set the kernels use.
#pragma once

#include <string_view>

#include "backend/cpu/kernel_table.h"
#include "base/status.h"

namespace longspan::backend::cpu {

enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

// "portable", "avx2", "avx512", "avx512bf16".
std::string_view IsaName(Isa isa);

// Whether this machine (and operating system) can run it.
bool IsaSupported(Isa isa);

// Chosen once: the widest that the machine supports, with dot products of bf16 pairs unless the
// processor executes them slower than multiply-adds; or what LONGSPAN_CPU_ISA names.
Isa ActiveIsa();

// Refuses a LONGSPAN_CPU_ISA that names nothing or what the machine lacks (ActiveIsa() is the best
// then).
base::Status CheckIsaChoice();

// The kernels of ActiveIsa(). Thread-safe.
const KernelTable& ActiveKernels();

// Makes a supported instruction set the active one. Not while ops run.
void SetIsaForTest(Isa isa);

}  // namespace longspan::backend::cpu
