// How long stages worked on a step.
#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "engine/output.h"
#include "spec/mesh.h"

namespace longspan::engine {

// Of every stage its slowest rank, all loops together: waits for others not counted, nor work on
// other plans between its loops.
inline std::vector<double> StageSeconds(const StepRecord& record, const spec::Mesh& mesh) {
  std::vector<double> seconds(static_cast<size_t>(mesh.pp));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const plan::StageTiming& timing = record.stages[static_cast<size_t>(rank)];
    double& stage = seconds[static_cast<size_t>(mesh.stage_of(rank))];
    const int64_t busy = timing.kernels + timing.transfer + timing.host();
    stage = std::max(stage, base::Seconds(base::Clock::Duration(busy)));
  }
  return seconds;
}

}  // namespace longspan::engine
