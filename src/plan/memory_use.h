// What a rank keeps in its GPU's memory.
#pragma once

#include <cstdint>
#include <span>

#include "plan/hardware_cost.h"

namespace longspan::plan {

struct MemoryUse {
  double weight_bytes = 0;
  double kv_bytes_per_token = 0;
  double workspace_bytes = 0;  // for steps of a number of rows
};

// Of a rank of a stage that owns these ranges, all loops together. Matrices count, with the scales
// of eight-bit blocks; embedding, head and routers are kept in sixteen bits. The cache is whole at
// every context-parallel rank, unless they divide it. Workspace is what passes between the blocks
// of a layer and the buffers of residual streams (runtime::ResidualBuffers), for steps of `rows`.
MemoryUse MemoryOfRank(const Deployment& deployment, std::span<const LayerRange> ranges,
                       int64_t rows);

}  // namespace longspan::plan
