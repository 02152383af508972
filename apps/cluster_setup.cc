#include "apps/cluster_setup.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "apps/model_location.h"
#include "apps/step_costs.h"
#include "checkpoint/hub_config.h"
#include "model/architecture.h"
#include "plan/block_share.h"
#include "plan/expert_share.h"
#include "plan/memory_use.h"
#include "plan/tensor_share.h"
#include "sim/hardware_file.h"
#include "sim/stage_split.h"

namespace longspan::apps {
namespace {

constexpr int64_t kDefaultChunkTokens = 8192;

int64_t KvBytes(const std::string& dtype) {
  if (dtype == "fp8") return 1;
  return dtype == "f32" ? 4 : 2;
}

base::Status CheckShares(const ClusterModel& cluster, const ClusterFlags& flags,
                         const spec::Mesh& mesh) {
  LONGSPAN_RETURN_IF_ERROR(spec::CheckMesh(mesh));
  LONGSPAN_RETURN_IF_ERROR(plan::CheckTensorShares(cluster.model, mesh.tp));
  LONGSPAN_RETURN_IF_ERROR(plan::CheckExpertShares(cluster.model, mesh));
  if (cluster.weight_block == 0 || flags.ignore_block_divisibility) return base::OkStatus();
  return plan::CheckBlockShares(cluster.model, mesh, cluster.weight_block);
}

base::Status CheckNodes(const EngineFlags& flags, const spec::HardwareSpec& hardware) {
  const int gpus = flags.nodes * hardware.gpus_per_node;
  if (flags.mesh.ranks() <= gpus) return base::OkStatus();
  return base::InvalidArgument(
      "{} ranks need more than the {} GPUs of --nnodes {}: give {}", flags.mesh.ranks(), gpus,
      flags.nodes, (flags.mesh.ranks() + hardware.gpus_per_node - 1) / hardware.gpus_per_node);
}

}  // namespace

base::Result<spec::HardwareSpec> FindHardware(const std::string& given) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::filesystem::path program, ProgramPath());
  return sim::LoadHardware(
      given, {program.parent_path() / "hardware", program.parent_path().parent_path() / "hardware",
              program.parent_path().parent_path() / "share" / "longspan" / "hardware"});
}

base::Result<ClusterModel> LoadClusterModel(const std::string& model_path,
                                            const ClusterFlags& flags) {
  ClusterModel cluster;
  LONGSPAN_ASSIGN_OR_RETURN(const auto folder, ResolveModel(model_path));
  LONGSPAN_ASSIGN_OR_RETURN(const auto config, checkpoint::HubConfig::Load(folder));
  LONGSPAN_ASSIGN_OR_RETURN(cluster.model, model::ReadModelSpec(config));
  LONGSPAN_ASSIGN_OR_RETURN(const auto blocks, config.ReadFp8Blocks());
  cluster.fp8_weights = blocks.has_value();
  cluster.weight_block = blocks ? blocks->rows : 0;
  LONGSPAN_ASSIGN_OR_RETURN(cluster.hardware, FindHardware(flags.hardware));
  cluster.node_link =
      flags.node_link == "ethernet" ? plan::NodeLink::kEthernet : plan::NodeLink::kInfiniband;
  return cluster;
}

base::Status CheckBlocks(const std::filesystem::path& model_dir, const spec::ModelSpec& model,
                         const spec::Mesh& mesh) {
  if (mesh.tp == 1) return base::OkStatus();
  LONGSPAN_ASSIGN_OR_RETURN(const auto config, checkpoint::HubConfig::Load(model_dir));
  LONGSPAN_ASSIGN_OR_RETURN(const auto blocks, config.ReadFp8Blocks());
  return blocks ? plan::CheckBlockShares(model, mesh, blocks->rows) : base::OkStatus();
}

base::Result<int64_t> ChooseContextLength(const EngineFlags& flags, const spec::ModelSpec& model) {
  if (flags.context_length <= 0) return int64_t{model.context_length};
  if (flags.context_length > model.context_length)
    return base::InvalidArgument(
        "--context-length {} is above the model's {}: raise max_position_embeddings in its "
        "config.json if it can really do that",
        flags.context_length, model.context_length);
  return int64_t{flags.context_length};
}

base::Result<std::vector<plan::LayerRange>> ChooseStages(
    const EngineFlags& flags, const spec::ModelSpec& model,
    const std::optional<plan::Deployment>& deployment) {
  const plan::PipelineShape shape = {.ranks = flags.mesh.pp, .loops = flags.virtual_stages};
  if (!flags.layer_partition.empty())
    return plan::ParseLayerPartition(flags.layer_partition, model.layers(), shape);
  // In the middle of a long prompt, where its average chunk is.
  const std::vector<double> costs = plan::LayerCosts(model, model.context_length / 4);
  const plan::EndCosts ends = plan::EndCostsOf(model);
  if (!deployment) return plan::SplitLayers(costs, shape, ends);
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t longest, ChooseContextLength(flags, model));
  const int64_t chunk =
      flags.chunked_prefill_size > 0 ? flags.chunked_prefill_size : kDefaultChunkTokens;
  const double workspace = plan::MemoryOfRank(*deployment, {}, chunk).workspace_bytes;
  return sim::SplitWithinMemory(
      *deployment, costs, ends, shape,
      {.prompt_tokens = flags.max_total_tokens.value_or(longest),
       .memory_bytes = deployment->hardware.memory_bytes - workspace,
       .memory_fraction = flags.max_total_tokens ? 1 : flags.memory_fraction});
}

base::Result<sim::SimulationSetup> SimulationSetupOf(const EngineFlags& flags,
                                                     const ClusterFlags& cluster_flags,
                                                     const ClusterModel& cluster) {
  LONGSPAN_RETURN_IF_ERROR(CheckNodes(flags, cluster.hardware));
  LONGSPAN_RETURN_IF_ERROR(CheckShares(cluster, cluster_flags, flags.mesh));
  sim::SimulationSetup setup;
  setup.deployment = {
      .model = cluster.model,
      .mesh = flags.mesh,
      .hardware = cluster.hardware,
      .precision = {.fp8_weights = cluster.fp8_weights, .kv_bytes = KvBytes(flags.kv_cache_dtype)},
      .kv_placement = flags.kv_placement == "sharded" ? plan::KvPlacement::kSharded
                                                      : plan::KvPlacement::kReplicated,
      .node_link = cluster.node_link};
  setup.loops = flags.virtual_stages;
  const plan::PipelineShape shape = {flags.mesh.pp, flags.virtual_stages};
  LONGSPAN_ASSIGN_OR_RETURN(setup.context_length, ChooseContextLength(flags, cluster.model));
  const plan::HardwareCost cost(setup.deployment);
  LONGSPAN_ASSIGN_OR_RETURN(setup.stages, ChooseStages(flags, cluster.model, setup.deployment));
  setup.scheduler.chunk_tokens =
      flags.chunked_prefill_size > 0 ? flags.chunked_prefill_size : kDefaultChunkTokens;
  setup.scheduler.chunk_policy = ChunkPolicyOf(flags);
  setup.scheduler.chunk_policy.context_length = setup.context_length;
  setup.scheduler.prior = plan::PriorCost(cost, shape, setup.stages);
  setup.scheduler.max_running = flags.max_running_requests;
  setup.scheduler.max_queued = flags.max_queued_requests;
  setup.scheduler.reuse_prefixes = !flags.disable_radix_cache;
  if (flags.max_decode_stall_ms)
    setup.scheduler.max_decode_stall_s = static_cast<double>(*flags.max_decode_stall_ms) / 1e3;
  setup.page_size = flags.page_size;
  setup.max_total_tokens = flags.max_total_tokens;
  setup.memory_fraction = flags.memory_fraction;
  return setup;
}

}  // namespace longspan::apps
