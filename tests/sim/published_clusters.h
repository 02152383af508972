// The clusters and settings of published results.
#pragma once

#include <string>
#include <vector>

#include "sim/hardware_file.h"
#include "sim/simulation.h"

namespace longspan::testing {

inline spec::HardwareSpec Profile(const std::string& name) {
  return sim::LoadHardware(std::string(LONGSPAN_SOURCE_DIR) + "/hardware/" + name + ".json", {})
      .value();
}

// As many layers to each stage, the last ones one more: what the published runs did.
inline std::vector<plan::LayerRange> EvenStages(int layers, int stages) {
  std::vector<plan::LayerRange> ranges;
  for (int stage = 0, begin = 0; stage < stages; ++stage) {
    const int count = layers / stages + (stage >= stages - layers % stages ? 1 : 0);
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

// Weights in FP8, a cache in BF16.
inline sim::SimulationSetup OnCluster(const spec::ModelSpec& model, const spec::Mesh& mesh,
                                      const std::string& hardware, int loops = 1) {
  sim::SimulationSetup setup;
  setup.deployment = {.model = model,
                      .mesh = mesh,
                      .hardware = Profile(hardware),
                      .precision = {.fp8_weights = true, .kv_bytes = 2}};
  setup.loops = loops;
  setup.stages = EvenStages(model.layers(), mesh.pp * loops);
  // Prompts as long as the context, and a token more. What fits was settled by those who ran it:
  // how much the cache and the workspace of their kernels took was not published.
  setup.context_length = model.context_length + 1;
  setup.deployment.hardware.memory_bytes = 1e12;
  setup.scheduler.reuse_prefixes = false;
  setup.scheduler.prior = plan::PriorCost(plan::HardwareCost(setup.deployment),
                                          {mesh.pp, mesh.pp == 1 ? 1 : loops}, setup.stages);
  return setup;
}

}  // namespace longspan::testing
