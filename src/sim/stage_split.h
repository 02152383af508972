// Which layers a stage gets on a cluster that is known.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/hardware_cost.h"
#include "plan/layer_split.h"

namespace longspan::sim {

// What a stage must hold, and where its chunks are.
struct StageLoad {
  int64_t prompt_tokens = 0;
  // Of a rank, for weights and for the prompt's cache over memory_fraction.
  double memory_bytes = 0;
  double memory_fraction = 1;
};

// Layers by their seconds for a chunk in the middle of the prompt (plan::SplitLayers). Where a rank
// would have more than its memory holds, as much by their bytes as makes all ranks fit, in eighths;
// where nothing does, by seconds alone. Errors are those of SplitLayers.
base::Result<std::vector<plan::LayerRange>> SplitByTimeAndMemory(const plan::HardwareCost& cost,
                                                                 const plan::PipelineShape& shape,
                                                                 const StageLoad& load);

// Weights and cache of the fullest rank, in the sense of StageLoad::memory_bytes.
double FullestRankBytes(const plan::HardwareCost& cost, int ranks,
                        std::span<const plan::LayerRange> stages, const StageLoad& load);

}  // namespace longspan::sim
