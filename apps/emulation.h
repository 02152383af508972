// Ranks of `--backend emulated`: a cluster that is not there, on the cores that are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/output.h"
#include "plan/hardware_cost.h"
#include "sim/simulation.h"

namespace longspan::apps {

// A folder for the ranks, removed at the end: the config.json of a stand-in, which has as many
// layers as the model and next to no columns, and what the model's own layers take.
class Emulation {
 public:
  // Times are multiplied by `time_scale`. `setup` has the model, the cluster and the stages.
  static base::Result<std::shared_ptr<const Emulation>> Prepare(const sim::SimulationSetup& setup,
                                                                double time_scale);
  ~Emulation();
  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // How long every stage takes for a step: the head, which is last and short, not counted.
  std::vector<double> StageSeconds(const engine::StepRecord& step) const;
  // What a rank's configuration calls its backend: "emulated:FOLDER#RANK".
  std::string BackendName(int rank) const;

 private:
  Emulation(std::filesystem::path folder, const sim::SimulationSetup& setup, double time_scale);

  std::filesystem::path folder_;
  plan::HardwareCost cost_;
  std::vector<std::vector<plan::LayerRange>> layers_;  // by stage, of all its loops
  double time_scale_;
};

// Whether a backend's name is one of those.
bool IsEmulated(std::string_view name);

// What a rank's name says: how long its layers and its head take.
struct EmulatedRank {
  std::function<double(int layer, std::span<const plan::RowRange> slices)> layer_s;
  std::function<double(int64_t rows)> head_s;
  int rows_divided = 1;
};
base::Result<EmulatedRank> ReadEmulatedRank(std::string_view name);

}  // namespace longspan::apps
