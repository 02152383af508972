// Attention of single rows (decoding) in bf16: the context is split over blocks, whose parts are
// merged in order (flash-decoding).
#pragma once

#include "backend/cuda/flash_attention.cuh"
#include "ops/backend.h"

namespace longspan::backend::cuda {

// Slices of one row each; all others are left alone, unless there are as many rows as slices: then
// all rows are computed. Takes dimensions of heads up to 128 for keys
// and values alike. Where the parts of a context begin depends on the row's position and on the
// number of slices and heads: a row's bits are not those of FlashAttention, nor the same in every
// batch. `scratch` has FlashDecodeWorkspaceBytes.
void FlashDecode(tensor::ExecutionContext& context, const FlashArgs& args, int64_t kv_heads,
                 const ops::StepTables& tables, float* scratch);

int64_t FlashDecodeWorkspaceBytes(int multiprocessors, int64_t heads, int64_t kv_heads,
                                  int64_t head_dim);

}  // namespace longspan::backend::cuda
