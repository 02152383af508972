// The kernels for any machine.
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd_portable.h"

namespace longspan::backend::cpu {

const KernelTable kPortableKernels = MakeKernels<Portable>("portable");

}  // namespace longspan::backend::cpu
