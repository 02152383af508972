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

// The split with the least slowest stage (plan::SplitLayers, with these costs) of those that every
// rank's memory holds: layers, embedding and head, and the prompt's cache. With loops, of those in
// which no stage has more than a part of the memory, the largest part with which all ranks fit, in
// 64ths. Where nothing fits, by cost alone. Errors are those of SplitLayers otherwise.
base::Result<std::vector<plan::LayerRange>> SplitWithinMemory(const plan::Deployment& deployment,
                                                              std::span<const double> costs,
                                                              const plan::EndCosts& ends,
                                                              const plan::PipelineShape& shape,
                                                              const StageLoad& load);

// The same by the seconds of a chunk in the middle of the prompt.
base::Result<std::vector<plan::LayerRange>> SplitByTimeAndMemory(const plan::HardwareCost& cost,
                                                                 const plan::PipelineShape& shape,
                                                                 const StageLoad& load);

// Weights and cache of the fullest rank, in the sense of StageLoad::memory_bytes.
double FullestRankBytes(const plan::Deployment& deployment, int ranks,
                        std::span<const plan::LayerRange> stages, const StageLoad& load);

}  // namespace longspan::sim
