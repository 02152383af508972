// The kernels for x86 with AVX2 and FMA.
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_avx2.h"

namespace longspan::backend::cpu {

const KernelTable kAvx2Kernels = MakeKernels<Avx2>("avx2");

}  // namespace longspan::backend::cpu
