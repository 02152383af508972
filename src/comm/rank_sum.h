// Sums over ranks.
#pragma once

#include <span>

#include "tensor/dtype.h"

namespace longspan::comm {

// out[i] = blocks[0][i] + blocks[1][i] + ..., in this order, in f32, rounded once to the type: f32
// or bf16. `out` may be one of the blocks. All have `count` elements.
void SumBlocks(tensor::DType dtype, std::span<const std::byte* const> blocks, int64_t count,
               std::byte* out);

}  // namespace longspan::comm
