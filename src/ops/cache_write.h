// Cache write: puts the new rows of a step into their cache slots.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// One plane of a layer's cache (kv/kv_layout.h): the keys, for example, or the latents. A page is
// laid out [head][token][dim]; slot = page * page_size + offset.
struct CacheWriteArgs {
  tensor::ConstView x;      // f32 or bf16 [rows, heads, dim]
  tensor::ConstView slots;  // i64 [rows], all different
  tensor::View cache;       // f32 or bf16 [pages, heads, page_size, dim]
};
using CacheWriteOp = void (*)(tensor::ExecutionContext&, const CacheWriteArgs&);

void CheckArgs(const CacheWriteArgs& args);

}  // namespace longspan::ops
