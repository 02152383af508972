// A model on a cluster that need not be there, for simulate, plan and emulated ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/engine_flags.h"
#include "base/result.h"
#include "plan/hardware_cost.h"
#include "sim/simulation.h"

namespace longspan::apps {

// Which cluster, and what is let pass.
struct ClusterFlags {
  std::string hardware;
  std::string node_link = "infiniband";
  bool ignore_block_divisibility = false;
};

// What a model folder, which may hold nothing but a config.json, and a profile say.
struct ClusterModel {
  spec::ModelSpec model;
  spec::HardwareSpec hardware;
  bool fp8_weights = false;
  int64_t weight_block = 0;  // rows and columns with one scale, 0 without
  plan::NodeLink node_link = plan::NodeLink::kInfiniband;
};

base::Result<ClusterModel> LoadClusterModel(const std::string& model_path,
                                            const ClusterFlags& flags);

// The profile of that name or file: hardware/ beside the program, or ../share/longspan/hardware
// where it is installed.
base::Result<spec::HardwareSpec> FindHardware(const std::string& given);

// Refuses a division of a model's weights through their eight-bit blocks.
base::Status CheckBlocks(const std::filesystem::path& model_dir, const spec::ModelSpec& model,
                         const spec::Mesh& mesh);

// The longest sequence: the flag's, or the model's, which bounds it.
base::Result<int64_t> ChooseContextLength(const EngineFlags& flags, const spec::ModelSpec& model);

// The layers of each virtual stage: as given, else by the multiply-adds of a chunk in the middle of
// a long prompt, and where the hardware is known so that every rank's memory holds its own and the
// cache of the longest sequence, if it can. Real, emulated and simulated ranks have the same ones
// for the same flags and hardware.
base::Result<std::vector<plan::LayerRange>> ChooseStages(
    const EngineFlags& flags, const spec::ModelSpec& model,
    const std::optional<plan::Deployment>& deployment);

// What the engine's flags say of a simulated run.
base::Result<sim::SimulationSetup> SimulationSetupOf(const EngineFlags& flags,
                                                     const ClusterFlags& cluster_flags,
                                                     const ClusterModel& cluster);

}  // namespace longspan::apps
