// From flags to a running engine.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "apps/emulation.h"
#include "apps/engine_flags.h"
#include "base/result.h"
#include "engine/engine.h"
#include "plan/layer_split.h"
#include "spec/model.h"
#include "tensor/dtype.h"

namespace longspan::apps {

// What the flags, the model and the machine together say.
struct EngineSetup {
  std::filesystem::path model_dir;
  spec::ModelSpec model;
  std::string backend;
  bool on_gpu = false;
  tensor::DType compute = tensor::DType::kF32;
  tensor::DType kv_cache = tensor::DType::kF32;
  plan::PipelineShape shape;
  std::vector<plan::LayerRange> stages;  // virtual ones, in pipeline order
  int threads = 1;
  int64_t chunk_tokens = 512;
  int64_t context_length = 0;
  std::shared_ptr<const Emulation> emulation;  // of --backend emulated
  std::optional<int64_t> emulated_tokens;      // that the emulated memory holds
  std::optional<plan::PipelineCost> emulated_cost;
  bool synthetic_kv = false;  // for benches, see runtime::RankConfig
};

// Reads the model's configuration and fills in what the flags leave open.
base::Result<EngineSetup> ResolveSetup(const EngineFlags& flags);

// How long a step with chunks may hold up decodes, in the time of the ranks: emulated ones that
// take a tenth of their time may hold others up for a tenth.
std::optional<double> DecodeStallSeconds(const EngineFlags& flags);

// Where the stages run; processes unless there is only one.
enum class StagePlacement { kAuto, kThreads };

// Starts the stages and waits until they have loaded.
base::Result<std::unique_ptr<engine::Engine>> StartEngine(
    const EngineFlags& flags, const EngineSetup& setup,
    StagePlacement placement = StagePlacement::kAuto,
    const std::function<void(double)>& loading = {});

}  // namespace longspan::apps
