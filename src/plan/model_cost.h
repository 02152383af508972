// What a chunk should cost by the model's figures, before anything is measured.
#pragma once

#include <span>

#include "plan/chunk_cost.h"
#include "plan/layer_split.h"
#include "spec/model.h"

namespace longspan::plan {

// Assumed figures of the device that has a part of a stage. Measurements correct them
// (plan/cost_fit.h); what counts until then are their proportions.
struct ComputeRates {
  double products_per_s = 2e10;    // multiply-adds of products with weights
  double attention_per_s = 1e10;   // multiply-adds of attention
  double cache_bytes_per_s = 4e9;  // of keys and values that a chunk's attention reads and arranges
  double layer_seconds = 2e-5;     // of a layer and a step, whatever its rows
};

// Of layers [range) of the model on one stage whose ranks, `ranks` of them, divide its work evenly.
ChunkCost CostOfLayers(const spec::ModelSpec& model, const LayerRange& range, int ranks,
                       const ComputeRates& rates);

// Of all stages.
PipelineCost CostOfStages(const spec::ModelSpec& model, const PipelineShape& shape,
                          std::span<const LayerRange> stages, int stage_ranks,
                          const ComputeRates& rates);

}  // namespace longspan::plan
