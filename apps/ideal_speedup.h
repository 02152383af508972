// What a pipeline could gain at best.
#pragma once

#include <vector>

#include "plan/layer_split.h"

namespace longspan::apps {

// Seconds of the chunks of a run, one stage's share each.
struct ChunkSums {
  double sum = 0;
  double max = 0;
};
ChunkSums SumChunks(const std::vector<double>& seconds);

// Identical stages finish chunks of times t after sum t + (P - 1) max t, with V loops not before
// sum t + (P - 1) / V max t; one rank that computes all layers takes P sum t. `core_share` is what
// each core keeps of its speed when all of them work: the peak of all over the peak of one and over
// their number. At least one chunk.
double IdealSpeedup(const ChunkSums& chunks, const plan::PipelineShape& shape, double core_share);

}  // namespace longspan::apps
