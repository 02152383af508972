#include "apps/step_costs.h"

#include <cctype>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/cluster_setup.h"
#include "apps/node_setup.h"
#include "apps/wiring.h"
#include "base/log.h"
#include "plan/hardware_cost.h"
#include "plan/model_cost.h"

namespace longspan::apps {
namespace {

// Rough figures of a core with AVX2 and of a Hopper GPU without a profile. Only their proportions
// count from the first measurement on, and those only until chunks of several lengths have been
// seen.
plan::ComputeRates AssumedRates(const EngineSetup& setup) {
  if (setup.on_gpu)
    return {.products_per_s = 2e14,
            .attention_per_s = 1.5e14,
            .cache_bytes_per_s = 2e12,
            .layer_seconds = 5e-5};
  return {.products_per_s = 4e10 * setup.threads,
          .attention_per_s = 4e10 * setup.threads,
          .cache_bytes_per_s = 4e9 * setup.threads,
          .layer_seconds = 3e-5};
}

// What this host computes with. Ranks that share a GPU are slower.
std::string HardwareText(const EngineFlags& flags, const EngineSetup& setup) {
  std::string host = fmt::format("{} x {} threads", ProcessorName(), setup.threads);
  if (!setup.on_gpu) return host;
  std::set<std::string> gpus;
  for (int gpu = 0; gpu < VisibleGpus(); ++gpu) gpus.insert(GpuName(gpu));
  return fmt::format("{} from {} by {} beside {}", fmt::join(gpus, " and "), flags.base_gpu_id,
                     flags.gpu_id_step, host);
}

std::string LayersText(const EngineSetup& setup) {
  std::string text;
  for (const plan::LayerRange& range : setup.stages)
    text += fmt::format("{}{}", text.empty() ? "" : ",", range.size());
  return text;
}

}  // namespace

std::optional<spec::HardwareSpec> ProfileOfGpu(const std::string& gpu) {
  std::string word;
  for (const char c : gpu + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (!word.empty()) {
      auto profile = FindHardware(word);
      if (profile.ok()) return std::move(profile).value();
    }
    word.clear();
  }
  return std::nullopt;
}

engine::ChunkPolicy ChunkPolicyOf(const EngineFlags& flags) {
  using Kind = engine::ChunkPolicy::Kind;
  const std::string name = ChunkPolicyName(flags);
  engine::ChunkPolicy policy;
  policy.kind = name == "planned"     ? Kind::kPlanned
                : name == "quadratic" ? Kind::kQuadratic
                                      : Kind::kFixed;
  if (flags.smooth_factor) policy.smoothing = *flags.smooth_factor;
  return policy;
}

CostCache CostCacheOf(const EngineFlags& flags, const EngineSetup& setup) {
  const auto model = ModelFingerprint(flags, setup);
  if (flags.cost_cache == "off" || !model.ok()) return {{}, {}, {}};
  const spec::Mesh& mesh = flags.mesh;
  const std::string layout =
      fmt::format("pp{}-cp{}-tp{}-ep{}-v{}", mesh.pp, mesh.cp, mesh.tp, mesh.ep, setup.shape.loops);
  const std::string name =
      fmt::format("{}-{}-{}", setup.model_dir.filename().string(), setup.backend, layout);
  const CostCacheKey key = {{"program", LONGSPAN_VERSION},
                            {"model", *model},
                            {"load format", flags.load_format},
                            {"backend", setup.backend},
                            {"hardware", HardwareText(flags, setup)},
                            {"hosts", std::to_string(flags.nodes)},
                            {"layout", layout},
                            {"layers", LayersText(setup)},
                            {"compute type", std::string(tensor::DTypeName(setup.compute))},
                            {"cache type", std::string(tensor::DTypeName(setup.kv_cache))},
                            {"cache placement", flags.kv_placement},
                            {"token split", flags.cp_strategy},
                            {"page size", std::to_string(flags.page_size)},
                            {"deterministic", flags.deterministic ? "on" : "off"}};
  const std::filesystem::path folder =
      flags.cost_cache == "auto" ? DefaultCostFolder() : std::filesystem::path(flags.cost_cache);
  return {folder, name, key};
}

plan::PipelineCost AssumedCost(const EngineFlags& flags, const EngineSetup& setup) {
  const std::optional<spec::HardwareSpec> hardware =
      setup.on_gpu ? ProfileOfGpu(GpuName(flags.base_gpu_id)) : std::nullopt;
  if (hardware) {
    const plan::Deployment deployment = {
        .model = setup.model,
        .mesh = flags.mesh,
        .hardware = *hardware,
        .precision = {.kv_bytes = tensor::SizeOf(setup.kv_cache),
                      .compute_bytes = tensor::SizeOf(setup.compute)}};
    return plan::PriorCost(plan::HardwareCost(deployment), setup.shape, setup.stages);
  }
  return plan::CostOfStages(setup.model, setup.shape, setup.stages, flags.mesh.stage_ranks(),
                            AssumedRates(setup));
}

}  // namespace longspan::apps
