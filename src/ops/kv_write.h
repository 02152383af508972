// KV write: puts the new keys and values of a step into their cache slots.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// A page of the cache is laid out [kv head][token][dim]; slot = page * page_size + offset.
struct KvWriteArgs {
  tensor::ConstView keys;    // f32 or bf16 [rows, kv_heads, head_dim]
  tensor::ConstView values;  // likewise
  tensor::ConstView slots;   // i64 [rows], all different
  tensor::View key_cache;    // f32 or bf16 [pages, kv_heads, page_size, head_dim]
  tensor::View value_cache;  // likewise
};
using KvWriteOp = void (*)(tensor::ExecutionContext&, const KvWriteArgs&);

void CheckArgs(const KvWriteArgs& args);

}  // namespace longspan::ops
