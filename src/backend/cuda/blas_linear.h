// Products by cuBLASLt, with its choice of kernel kept for every shape.
#pragma once

#include <cstdint>

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::backend::cuda {

// out = x W^T for bf16 x [rows, columns] and W [features, columns] (dense), summed in f32; out is
// bf16 or f32. False, with nothing queued, where cuBLASLt has no kernel for the shape and
// alignment. The choice is made in the first call of a shape (on the host alone) and kept for the
// life of the process, so that a shape always gets the same kernel; sums that are split are added
// in a fixed order. Another number of rows may get another kernel, and other bits.
bool MultiplyByBlas(tensor::ExecutionContext& context, const tensor::ConstView& x,
                    const void* weight, const tensor::View& out);

}  // namespace longspan::backend::cuda
