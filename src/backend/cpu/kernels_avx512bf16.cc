// The kernels for x86 with AVX-512 and its bf16 dot product.
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_avx512.h"

namespace longspan::backend::cpu {

const KernelTable kAvx512Bf16Kernels = MakeKernels<Avx512<true>>("avx512bf16");

}  // namespace longspan::backend::cpu
