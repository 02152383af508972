#include "apps/ideal_speedup.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace longspan::apps {

ChunkSums SumChunks(const std::vector<double>& seconds) {
  LONGSPAN_CHECK(!seconds.empty(), "no chunk was computed");
  return {.sum = std::accumulate(seconds.begin(), seconds.end(), 0.0),
          .max = *std::max_element(seconds.begin(), seconds.end())};
}

double IdealSpeedup(const ChunkSums& chunks, const plan::PipelineShape& shape, double core_share) {
  return core_share * shape.ranks * chunks.sum /
         (chunks.sum + (shape.ranks - 1) * chunks.max / shape.loops);
}

}  // namespace longspan::apps
