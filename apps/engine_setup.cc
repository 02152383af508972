#include "apps/engine_setup.h"

#include <algorithm>
#include <optional>

#include "apps/chunk_limit.h"
#include "apps/cluster_setup.h"
#include "apps/model_location.h"
#include "apps/node_setup.h"
#include "apps/step_costs.h"
#include "apps/trace_writer.h"
#include "apps/wiring.h"
#include "base/log.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "plan/expert_share.h"
#include "plan/tensor_share.h"
#include "runtime/node_wire.h"
#include "runtime/stage_group.h"
#include "tensor/thread_pool.h"

namespace longspan::apps {
namespace {

// Without any progress in between: then it is no accident.
constexpr int kMostRestarts = 3;
// Without --max-total-tokens: room for so many of the longest sequences, if the memory is there.
// More would only reserve what nobody fills.
constexpr int64_t kLongestSequencesHeld = 8;

// The logits of a step go to the leader in one frame, which holds 1 GiB at most.
int64_t MaxReturnedRows(int64_t vocab_size) {
  constexpr int64_t kMostFloats = int64_t{1} << 27;
  return std::max<int64_t>(1, kMostFloats / vocab_size);
}

// The stages that run on this host.
runtime::StageShare StagesHere(const EngineFlags& flags) {
  return runtime::SpreadStages(flags.mesh.pp, flags.nodes)[static_cast<size_t>(flags.node_rank)];
}

int RanksHere(const EngineFlags& flags) {
  return StagesHere(flags).count() * flags.mesh.stage_ranks();
}

// Packing more weights than there is memory would end in the kernel killing the process.
base::Status CheckWeightsFit(const EngineFlags& flags, const EngineSetup& setup) {
  LONGSPAN_ASSIGN_OR_RETURN(const ops::Backend* backend, FindBackend(setup.backend));
  // Of a GPU's memory its rank knows.
  if (!backend->is_on_host()) return base::OkStatus();
  const int64_t needed = model::ParametersOfRanks(setup.model, flags.mesh) *
                         tensor::SizeOf(setup.compute) * StagesHere(flags).count() / flags.mesh.pp;
  const int64_t available = backend->AvailableBytes();
  constexpr double kGib = 1 << 30;
  if (needed > available)
    return base::ResourceExhausted(
        "the weights need {:.1f} GiB as {} and {:.1f} GiB of memory are free: free some, or take a "
        "smaller model{}",
        static_cast<double>(needed) / kGib, tensor::DTypeName(setup.compute),
        static_cast<double>(available) / kGib,
        flags.mesh.cp > 1 ? " or --cp-size (each of these ranks holds them all)" : "");
  return base::OkStatus();
}

tensor::DType ParseDType(const std::string& name, tensor::DType automatic) {
  if (name == "f32") return tensor::DType::kF32;
  return name == "bf16" ? tensor::DType::kBf16 : automatic;
}

plan::PipelineShape ShapeOf(const EngineFlags& flags) {
  return {.ranks = flags.mesh.pp, .loops = flags.virtual_stages};
}

// What a stage's ranks divide among themselves.
base::Status CheckDivision(const spec::Mesh& mesh, const spec::ModelSpec& model) {
  LONGSPAN_RETURN_IF_ERROR(plan::CheckTensorShares(model, mesh.tp));
  return plan::CheckExpertShares(model, mesh);
}

// Of the rank at this place among those of its node.
int GpuOf(const EngineFlags& flags, int place) {
  return flags.base_gpu_id + flags.gpu_id_step * place;
}

// The ranks of a stage read each other's memory.
base::Status CheckGpusReachEachOther(const EngineFlags& flags) {
  const int lanes = flags.mesh.stage_ranks();
  for (int place = 0; place < RanksHere(flags); ++place) {
    for (int other = place / lanes * lanes; other < place; ++other) {
      const int here = GpuOf(flags, place);
      const int there = GpuOf(flags, other);
      // One that is not there its rank refuses.
      if (std::max(here, there) >= VisibleGpus()) continue;
      if (!CanCopyBetweenGpus(here, there))
        return base::InvalidArgument(
            "GPU {} cannot reach the memory of GPU {}, and the ranks of a stage must: choose "
            "others with --base-gpu-id and --gpu-id-step, or use --pp-size in the place of "
            "--cp-size and --tp-size",
            here, there);
    }
  }
  return base::OkStatus();
}

int ChooseThreads(const EngineFlags& flags) {
  if (flags.threads > 0) return flags.threads;
  const auto cores = static_cast<int>(tensor::AllowedCores().size());
  return std::max(1, cores / RanksHere(flags));
}

plan::KvPlacement ParseKvPlacement(const EngineFlags& flags) {
  return flags.kv_placement == "sharded" ? plan::KvPlacement::kSharded
                                         : plan::KvPlacement::kReplicated;
}

// Between neighbours of one host, where their GPUs can.
void ChoosePeerCopies(std::vector<runtime::RankConfig>& configs, bool is_ring) {
  const auto lanes = static_cast<size_t>(configs[0].mesh.stage_ranks());
  for (size_t rank = 0; rank < configs.size(); ++rank) {
    if (rank + lanes >= configs.size() && !is_ring) return;
    runtime::RankConfig& here = configs[rank];
    runtime::RankConfig& next = configs[(rank + lanes) % configs.size()];
    if (here.node != next.node || !CanCopyBetweenGpus(here.device, next.device)) continue;
    here.next_by_peer_copy = true;
    next.previous_by_peer_copy = true;
  }
}

// The exchange of rows between experts is time alone: a stand-in has none.
void Emulate(const Emulation& emulation, std::vector<runtime::RankConfig>& configs) {
  for (runtime::RankConfig& config : configs) {
    config.model_dir = emulation.folder().string();
    config.load_format = runtime::LoadFormat::kDummy;
    config.backend = emulation.BackendName(config.rank);
    config.mesh.ep = 1;
  }
}

std::vector<runtime::RankConfig> RankConfigs(const EngineFlags& flags, const EngineSetup& setup,
                                             const engine::SchedulerOptions& scheduler) {
  std::vector<runtime::RankConfig> configs;
  const spec::Mesh& mesh = flags.mesh;
  const int lanes = mesh.stage_ranks();
  const auto shares = runtime::SpreadStages(mesh.pp, flags.nodes);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int stage = mesh.stage_of(rank);
    const auto here = std::find_if(shares.begin(), shares.end(),
                                   [&](const auto& share) { return share.Has(stage); });
    const int place = rank - here->first * lanes;  // among the ranks of its node
    const auto cores = tensor::CoresOfRank(place, here->count() * lanes, setup.threads);
    configs.push_back({
        .model_dir = setup.model_dir.string(),
        .load_format =
            flags.load_format == "dummy" ? runtime::LoadFormat::kDummy : runtime::LoadFormat::kAuto,
        .dummy_seed = flags.dummy_seed,
        .backend = setup.backend,
        .threads = setup.threads,
        .cores = {cores.begin(), cores.end()},
        .device = setup.on_gpu ? GpuOf(flags, place) : -1,
        .compute = setup.compute,
        .kv_cache = setup.kv_cache,
        .deterministic = flags.deterministic,
        .synthetic_kv = setup.synthetic_kv,
        .node = static_cast<int32_t>(here - shares.begin()),
        .mesh = mesh,
        .rank = rank,
        .token_split = flags.cp_strategy == "zigzag" ? plan::TokenSplit::kZigzag
                                                     : plan::TokenSplit::kInterleave,
        .kv_placement = ParseKvPlacement(flags),
        .ranges = plan::RangesOfRank(setup.stages, mesh.pp, stage),
        .page_size = flags.page_size,
        .max_rows = scheduler.chunk_tokens + scheduler.max_running,
        .max_slices = 2 * scheduler.max_running,
        .max_context = setup.context_length,
        .peer_timeout_ms = static_cast<int64_t>(1000 * flags.peer_timeout),
        .watchdog_timeout_ms = static_cast<int64_t>(1000 * flags.watchdog_timeout),
    });
  }
  if (setup.on_gpu) ChoosePeerCopies(configs, setup.shape.is_ring());
  if (setup.emulation != nullptr) Emulate(*setup.emulation, configs);
  return configs;
}

// Empty where no trace is wanted.
std::function<void(const engine::StepRecord&)> TraceTo(const std::string& path,
                                                       const spec::Mesh& mesh) {
  if (path.empty()) return {};
  return [writer = std::make_shared<TraceWriter>(path, mesh.ranks(), mesh.stage_ranks())](
             const engine::StepRecord& step) { writer->Add(step); };
}

// What every GPU's memory is used for.
void LogMemory(const runtime::GroupInfo& info, const spec::Mesh& mesh) {
  constexpr double kGib = 1 << 30;
  for (size_t number = 0; number < info.ranks.size(); ++number) {
    const runtime::RankReady& rank = info.ranks[number];
    const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGib; };
    const int64_t kv_bytes = rank.kv_bytes_per_page * info.pages;
    base::Log("engine").info(
        "{} on GPU {}: weights {:.2f} GiB, workspace {:.2f} GiB, KV cache {:.2f} GiB ({} "
        "tokens), {:.2f} GiB left",
        spec::RankName(mesh, static_cast<int>(number)), rank.device, gib(rank.weight_bytes),
        gib(rank.workspace_bytes), gib(kv_bytes), info.capacity_tokens(),
        gib(rank.available_bytes - rank.workspace_bytes - kv_bytes));
  }
}

plan::PipelineCost PriorCost(const EngineFlags& flags, const EngineSetup& setup,
                             const CostCache& costs) {
  if (setup.emulated_cost) return *setup.emulated_cost;
  plan::PipelineCost assumed = AssumedCost(flags, setup);
  return costs.Load(setup.shape, assumed.stages.front().top_k).value_or(assumed);
}

// Empty where ranks compute.
std::function<std::vector<double>(const engine::StepRecord&)> ModelledSeconds(
    const EngineSetup& setup) {
  if (setup.emulation == nullptr) return {};
  return [emulation = setup.emulation](const engine::StepRecord& step) {
    return emulation->StageSeconds(step);
  };
}

using RanksStarter =
    std::function<base::Result<std::vector<std::unique_ptr<runtime::RankHandle>>>()>;

// On GPUs of a kind that has a profile, whose figures count. Weights are kept in the compute type.
std::optional<plan::Deployment> DeploymentOfGpus(const EngineFlags& flags,
                                                 const EngineSetup& setup) {
  if (!setup.on_gpu) return std::nullopt;
  auto hardware = ProfileOfGpu(GpuName(flags.base_gpu_id));
  if (!hardware) return std::nullopt;
  return plan::Deployment{.model = setup.model,
                          .mesh = flags.mesh,
                          .hardware = std::move(*hardware),
                          .precision = {.kv_bytes = tensor::SizeOf(setup.kv_cache),
                                        .compute_bytes = tensor::SizeOf(setup.compute)},
                          .kv_placement = flags.kv_placement == "sharded"
                                              ? plan::KvPlacement::kSharded
                                              : plan::KvPlacement::kReplicated};
}

// Starts all ranks, as often as it is called.
base::Result<RanksStarter> RankStarter(const EngineFlags& flags, const EngineSetup& setup,
                                       StagePlacement placement) {
  if (flags.nodes > 1) {
    LONGSPAN_ASSIGN_OR_RETURN(NodeOptions options, NodeOptionsOf(flags, setup));
    LONGSPAN_ASSIGN_OR_RETURN(auto listening, NodeLeader::Listen(std::move(options)));
    const std::shared_ptr<NodeLeader> leader = std::move(listening);
    return RanksStarter([leader] { return leader->StartRanks(); });
  }
  const RankLayout layout = {.mesh = flags.mesh, .loops = flags.virtual_stages};
  // What has gone wrong on a GPU ends with the process that used it.
  const bool alone = flags.mesh.ranks() == 1 && !setup.on_gpu;
  const bool threads = placement == StagePlacement::kThreads || alone;
  return RanksStarter(
      [=] { return threads ? StartRankThreads(layout) : StartRankProcesses(layout); });
}

// Ranks that load a stand-in and take the time of the model's layers.
base::Result<EngineSetup> ResolveEmulated(const EngineFlags& flags) {
  EngineSetup setup;
  LONGSPAN_ASSIGN_OR_RETURN(setup.model_dir, ResolveModel(flags.model_path));
  const ClusterFlags cluster_flags = {.hardware = flags.hardware, .node_link = flags.node_link};
  LONGSPAN_ASSIGN_OR_RETURN(const ClusterModel cluster,
                            LoadClusterModel(flags.model_path, cluster_flags));
  EngineFlags on_cluster = flags;
  on_cluster.nodes =
      (flags.mesh.ranks() + cluster.hardware.gpus_per_node - 1) / cluster.hardware.gpus_per_node;
  LONGSPAN_ASSIGN_OR_RETURN(const sim::SimulationSetup simulated,
                            SimulationSetupOf(on_cluster, cluster_flags, cluster));
  LONGSPAN_ASSIGN_OR_RETURN(setup.emulation, Emulation::Prepare(simulated, flags.time_scale));
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t pages, sim::PagesOf(simulated));
  setup.emulated_tokens = pages * simulated.page_size;
  setup.emulated_cost = simulated.scheduler.prior;
  for (plan::ChunkCost& cost : setup.emulated_cost->stages)
    cost = plan::Scaled(cost, flags.time_scale);
  setup.model = cluster.model;
  setup.backend = "emulated";
  setup.compute = setup.kv_cache = tensor::DType::kBf16;
  setup.shape = ShapeOf(flags);
  setup.stages = simulated.stages;
  setup.context_length = simulated.context_length;
  setup.chunk_tokens = std::min(simulated.scheduler.chunk_tokens, setup.context_length);
  return setup;
}

}  // namespace

std::optional<double> DecodeStallSeconds(const EngineFlags& flags) {
  if (!flags.max_decode_stall_ms) return std::nullopt;
  const double scale = flags.backend == "emulated" ? flags.time_scale : 1;
  return scale * static_cast<double>(*flags.max_decode_stall_ms) / 1e3;
}

base::Result<EngineSetup> ResolveSetup(const EngineFlags& flags) {
  if (flags.backend == "emulated") return ResolveEmulated(flags);
  EngineSetup setup;
  LONGSPAN_ASSIGN_OR_RETURN(setup.model_dir, ResolveModel(flags.model_path));
  LONGSPAN_ASSIGN_OR_RETURN(setup.model, model::LoadModelSpec(setup.model_dir));
  LONGSPAN_ASSIGN_OR_RETURN(const ops::Backend* backend, FindBackend(flags.backend));
  setup.backend = backend->name();
  LONGSPAN_RETURN_IF_ERROR(CheckDivision(flags.mesh, setup.model));
  LONGSPAN_RETURN_IF_ERROR(CheckBlocks(setup.model_dir, setup.model, flags.mesh));
  if (!backend->is_on_host()) LONGSPAN_RETURN_IF_ERROR(CheckGpusReachEachOther(flags));
  if (!backend->is_on_host() && flags.kv_placement == "sharded" && flags.mesh.cp > 1 &&
      setup.model.indexer)
    return base::Unimplemented(
        "GPUs cannot divide the cache of a model with an indexer yet: use --kv-placement "
        "replicated "
        "or --backend cpu");
  const bool reference = setup.backend == "reference";
  setup.compute = ParseDType(flags.dtype, reference ? tensor::DType::kF32 : tensor::DType::kBf16);
  setup.kv_cache = ParseDType(flags.kv_cache_dtype, setup.compute);
  LONGSPAN_RETURN_IF_ERROR(backend->CheckTypes(setup.compute, setup.kv_cache));
  setup.shape = ShapeOf(flags);
  setup.on_gpu = !backend->is_on_host();
  LONGSPAN_ASSIGN_OR_RETURN(setup.stages,
                            ChooseStages(flags, setup.model, DeploymentOfGpus(flags, setup)));
  setup.threads = ChooseThreads(flags);
  LONGSPAN_ASSIGN_OR_RETURN(setup.context_length, ChooseContextLength(flags, setup.model));
  setup.chunk_tokens = flags.chunked_prefill_size > 0 ? flags.chunked_prefill_size
                                                      : DefaultChunkTokens(flags, setup);
  setup.chunk_tokens = std::min(setup.chunk_tokens, setup.context_length);
  return setup;
}

base::Result<std::unique_ptr<engine::Engine>> StartEngine(
    const EngineFlags& flags, const EngineSetup& setup, StagePlacement placement,
    const std::function<void(double)>& loading) {
  EngineFlags cost_flags = flags;
  // Modelled times are known, and no machine's.
  if (setup.emulation != nullptr) cost_flags.cost_cache = "off";
  const CostCache costs = CostCacheOf(cost_flags, setup);
  engine::SchedulerOptions scheduler = {
      .chunk_tokens = setup.chunk_tokens,
      .max_running = flags.max_running_requests,
      .max_queued = flags.max_queued_requests,
      .max_returned_rows = MaxReturnedRows(setup.model.vocab_size),
      .reuse_prefixes = !flags.disable_radix_cache,
      .chunk_policy = ChunkPolicyOf(flags),
      .max_decode_stall_s = DecodeStallSeconds(flags),
      .prior = PriorCost(flags, setup, costs)};
  // Not that of a bench, which ends with its prompts.
  scheduler.chunk_policy.context_length =
      flags.context_length > 0 ? flags.context_length : setup.model.context_length;
  if (setup.emulation == nullptr) LONGSPAN_RETURN_IF_ERROR(CheckWeightsFit(flags, setup));
  // Before the ranks: who waits for large weights is to hear of a wrong path now.
  auto trace = TraceTo(flags.trace_out, flags.mesh);
  LONGSPAN_ASSIGN_OR_RETURN(const auto start_ranks, RankStarter(flags, setup, placement));
  runtime::CapacityOptions capacity = {
      .max_total_tokens = setup.emulated_tokens ? setup.emulated_tokens : flags.max_total_tokens,
      .memory_fraction = flags.memory_fraction,
      .most_tokens = kLongestSequencesHeld * setup.context_length};
  const auto bring_up = [start_ranks, configs = RankConfigs(flags, setup, scheduler)](
                            plan::Epoch epoch, const runtime::CapacityOptions& wanted,
                            const runtime::StageGroup::Progress& progress)
      -> base::Result<std::unique_ptr<runtime::StageGroup>> {
    auto of_epoch = configs;
    for (runtime::RankConfig& config : of_epoch) config.epoch = epoch;
    LONGSPAN_ASSIGN_OR_RETURN(auto ranks, start_ranks());
    return runtime::StageGroup::BringUp(std::move(ranks), of_epoch, wanted, progress);
  };
  LONGSPAN_ASSIGN_OR_RETURN(auto group, bring_up({0}, capacity, loading));
  capacity.max_total_tokens = group->info().capacity_tokens();
  if (setup.on_gpu)
    LogMemory(group->info(), flags.mesh);
  else if (flags.backend == "auto" && HasGpuBackend())
    base::Log("engine").info("computing on the CPU: {}", WhyNoGpu());
  const auto restart = [bring_up, capacity](plan::Epoch epoch) {
    return bring_up(epoch, capacity, {});
  };
  return std::make_unique<engine::Engine>(
      std::move(group),
      engine::EngineOptions{.scheduler = scheduler,
                            .vocab_size = setup.model.vocab_size,
                            .context_length = setup.context_length,
                            .end_tokens = setup.model.end_tokens,
                            .stage_seconds = ModelledSeconds(setup),
                            .trace = std::move(trace),
                            .costs_learnt = [costs](const auto& learnt) { costs.Save(learnt); },
                            .restart = restart,
                            .most_restarts = flags.no_replay ? 0 : kMostRestarts});
}

}  // namespace longspan::apps
