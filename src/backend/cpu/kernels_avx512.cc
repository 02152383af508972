// The kernels for x86 with AVX-512 (F, BW, DQ, VL).
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_avx512.h"

namespace longspan::backend::cpu {

const KernelTable kAvx512Kernels = MakeKernels<Avx512<false>>("avx512");

}  // namespace longspan::backend::cpu
