// What a GPU receives from others while a prompt is computed.
#pragma once

#include <span>

#include "plan/hardware_cost.h"

namespace longspan::sim {

// Bytes, averaged over the GPUs of a deployment.
struct CommVolume {
  double pipeline = 0;
  double tensor = 0;
  double context = 0;
  double expert = 0;
};

// Of these steps, by the formulas of plan/exchange_volume.h and plan/context_volume.h; residual
// streams pass every border between virtual stages.
CommVolume VolumeOf(const plan::Deployment& deployment, const plan::PipelineShape& shape,
                    std::span<const plan::RowRange> steps);

}  // namespace longspan::sim
