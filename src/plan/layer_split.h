// Which layers every stage owns.
#pragma once

#include <cstdint>
#include <functional>
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

// What comes before the first layer and after the last one.
struct EndCosts {
  double embedding = 0;
  double head = 0;
};

// The same measure for the ends. The embedding is a copy of a row. The head is for the few rows
// that need logits: one of 32, as when a long prompt gets a short answer.
EndCosts EndCostsOf(const spec::ModelSpec& model);

// P ranks that own V ranges each: stage v * P + r of the P * V virtual ones is range v of rank r.
struct PipelineShape {
  int ranks = 1;  // --pp-size
  int loops = 1;  // --virtual-stages

  int stages() const { return ranks * loops; }
  // Whether the last rank passes residual streams to the first.
  bool is_ring() const { return ranks > 1 && loops > 1; }
};

// Whether a range may be a stage; empty: any may.
using StageFits = std::function<bool(LayerRange)>;

// Contiguous, non-empty ranges in pipeline order, one per virtual stage, that minimise the cost of
// the most expensive one; among those the most even ones, and of these the ones whose later stages
// are lighter. `costs` has one entry per layer; 1 <= virtual stages <= layers, else
// InvalidArgument. Of the splits whose stages all pass `fits`; ResourceExhausted where none does.
base::Result<std::vector<LayerRange>> SplitLayers(std::span<const double> costs,
                                                  const PipelineShape& shape,
                                                  const EndCosts& ends = {},
                                                  const StageFits& fits = {});

// "15,15,15,16": layers of each virtual stage in pipeline order. It must have as many positive
// entries, and they must sum to `layers`.
base::Result<std::vector<LayerRange>> ParseLayerPartition(std::string_view text, int layers,
                                                          const PipelineShape& shape);

// The ranges that a rank owns, in the order of its loops.
std::vector<LayerRange> RangesOfRank(std::span<const LayerRange> stages, int ranks, int rank);

}  // namespace longspan::plan
