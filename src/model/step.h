// What a block needs to know of the step that it computes.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"
#include "ops/step_tables.h"
#include "tensor/execution_context.h"

namespace longspan::model {

// The cache of one layer: [pages, kv_heads, page_size, head_dim] each.
struct LayerCache {
  tensor::View keys;
  tensor::View values;
};

// Valid while one step is computed. Blocks take their scratch from context.workspace and give it
// back.
struct Step {
  tensor::ExecutionContext& context;
  const ops::OpTable& ops;
  ops::StepTables tables;
  tensor::ConstView cosines;  // f32 [rows, head_dim / 2]
  tensor::ConstView sines;
};

}  // namespace longspan::model
