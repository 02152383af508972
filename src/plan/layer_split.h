// Which layers every stage owns.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "spec/model.h"

namespace longspan::plan {

struct LayerRange {
  int begin = 0;
  int end = 0;  // one past the last
  int size() const { return end - begin; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// The relative cost of every layer for one token of a prefill at `depth` tokens of context:
// multiplications of its products and its attention.
std::vector<double> LayerCosts(const spec::ModelSpec& model, int64_t depth);

// Contiguous, non-empty ranges in pipeline order that minimise the cost of the most expensive
// stage, and among those the one whose later stages are lighter (the last one also samples).
// `costs` has one entry per layer; 1 <= stages <= layers, else InvalidArgument.
base::Result<std::vector<LayerRange>> SplitLayers(std::span<const double> costs, int stages);

// "15,15,15,16": layers of each stage in pipeline order. It must have `stages` positive entries
// that sum to `layers`.
base::Result<std::vector<LayerRange>> ParseLayerPartition(std::string_view text, int layers,
                                                          int stages);

}  // namespace longspan::plan
