// What a block needs to know of the step that it computes.
#pragma once

#include <array>
#include <cstdint>

#include "kv/kv_layout.h"
#include "ops/dispatch.h"
#include "ops/step_tables.h"
#include "tensor/execution_context.h"

namespace longspan::model {

// The cache of one layer, by plane (kv/kv_layout.h): [pages, heads, page_size, dim] each.
struct LayerCache {
  std::array<tensor::View, kv::kMaxCachePlanes> planes;
};

// Valid while one step is computed. Blocks take their scratch from context.workspace and give it
// back.
struct Step {
  tensor::ExecutionContext& context;
  const ops::OpTable& ops;
  ops::StepTables tables;
  tensor::ConstView cosines;  // f32 [rows, rotated dimensions / 2]
  tensor::ConstView sines;
};

}  // namespace longspan::model
