#include "apps/emulation.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/input_files.h"

namespace longspan::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kPrefix = "emulated:";
constexpr const char* kDescription = "emulation.json";
constexpr int kHeadDim = 4;

// Heads and columns that as many ranks can divide, and the vocabulary of the model.
json StandIn(const spec::ModelSpec& model, const spec::Mesh& mesh) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", model.vocab_size},
          {"hidden_size", kHeadDim * mesh.tp},
          {"intermediate_size", kHeadDim * mesh.tp},
          {"num_hidden_layers", model.layers()},
          {"num_attention_heads", mesh.tp},
          {"num_key_value_heads", mesh.tp},
          {"head_dim", kHeadDim},
          {"max_position_embeddings", model.context_length},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 1000.0}};
}

json ToJson(const spec::LinkSpec& link) {
  return {{"bytes_per_s", link.bytes_per_s}, {"latency_s", link.latency_s}};
}

spec::LinkSpec LinkOf(const json& value) {
  return {.bytes_per_s = value["bytes_per_s"], .latency_s = value["latency_s"]};
}

json ToJson(const spec::HardwareSpec& hardware) {
  const spec::KernelSpec& kernels = hardware.kernels;
  return {
      {"name", hardware.name},
      {"flops", {hardware.bf16_flops, hardware.fp8_flops}},
      {"memory", {hardware.memory_bytes, hardware.memory_bytes_per_s}},
      {"gpus_per_node", hardware.gpus_per_node},
      {"nvlink", ToJson(hardware.nvlink)},
      {"infiniband", ToJson(hardware.infiniband)},
      {"ethernet", ToJson(hardware.ethernet)},
      {"kernels",
       {kernels.bf16_products, kernels.fp8_products, kernels.attention, kernels.sparse_attention,
        kernels.index, kernels.memory, kernels.links, kernels.half_rows, kernels.launch_s}}};
}

spec::HardwareSpec HardwareOf(const json& value) {
  const json& kernels = value["kernels"];
  return {.name = value["name"],
          .bf16_flops = value["flops"][0],
          .fp8_flops = value["flops"][1],
          .memory_bytes = value["memory"][0],
          .memory_bytes_per_s = value["memory"][1],
          .gpus_per_node = value["gpus_per_node"],
          .nvlink = LinkOf(value["nvlink"]),
          .infiniband = LinkOf(value["infiniband"]),
          .ethernet = LinkOf(value["ethernet"]),
          .kernels = {.bf16_products = kernels[0],
                      .fp8_products = kernels[1],
                      .attention = kernels[2],
                      .sparse_attention = kernels[3],
                      .index = kernels[4],
                      .memory = kernels[5],
                      .links = kernels[6],
                      .half_rows = kernels[7],
                      .launch_s = kernels[8]}};
}

json ToJson(const spec::ModelSpec& model) {
  json value = {
      {"vocab_size", model.vocab_size},
      {"hidden_size", model.hidden_size},
      {"intermediate_size", model.intermediate_size},
      {"attention", {model.attention.heads, model.attention.kv_heads, model.attention.head_dim}},
      {"moe",
       {model.moe.experts, model.moe.experts_per_token, model.moe.intermediate_size,
        model.moe.shared_experts}}};
  for (const spec::FeedForwardKind kind : model.feed_forward)
    value["is_moe"].push_back(kind == spec::FeedForwardKind::kMoe);
  if (model.latent_attention) {
    const spec::LatentAttentionSpec& latent = *model.latent_attention;
    value["latent"] = {latent.heads,    latent.query_rank, latent.latent_rank,
                       latent.nope_dim, latent.rope_dim,   latent.value_dim};
  }
  if (model.indexer) {
    const spec::IndexerSpec& indexer = *model.indexer;
    value["indexer"] = {indexer.heads, indexer.head_dim, indexer.rope_dim, indexer.top_k};
  }
  return value;
}

// What the costs look at.
spec::ModelSpec ModelOf(const json& value) {
  spec::ModelSpec model;
  model.vocab_size = value["vocab_size"];
  model.hidden_size = value["hidden_size"];
  model.intermediate_size = value["intermediate_size"];
  const json& attention = value["attention"];
  model.attention = {.heads = attention[0], .kv_heads = attention[1], .head_dim = attention[2]};
  const json& moe = value["moe"];
  model.moe = {.experts = moe[0],
               .experts_per_token = moe[1],
               .intermediate_size = moe[2],
               .shared_experts = moe[3]};
  for (const bool is_moe : value["is_moe"])
    model.feed_forward.push_back(is_moe ? spec::FeedForwardKind::kMoe
                                        : spec::FeedForwardKind::kDense);
  if (value.contains("latent")) {
    const json& latent = value["latent"];
    model.latent_attention = spec::LatentAttentionSpec{.heads = latent[0],
                                                       .query_rank = latent[1],
                                                       .latent_rank = latent[2],
                                                       .nope_dim = latent[3],
                                                       .rope_dim = latent[4],
                                                       .value_dim = latent[5]};
  }
  if (value.contains("indexer")) {
    const json& indexer = value["indexer"];
    model.indexer = spec::IndexerSpec{
        .heads = indexer[0], .head_dim = indexer[1], .rope_dim = indexer[2], .top_k = indexer[3]};
  }
  return model;
}

json Describe(const sim::SimulationSetup& setup, double time_scale) {
  const plan::Deployment& deployment = setup.deployment;
  const spec::Mesh& mesh = deployment.mesh;
  json value = {{"model", ToJson(deployment.model)},
                {"mesh", {mesh.pp, mesh.cp, mesh.tp, mesh.ep}},
                {"hardware", ToJson(deployment.hardware)},
                {"fp8_weights", deployment.precision.fp8_weights},
                {"kv_bytes", deployment.precision.kv_bytes},
                {"ethernet", deployment.node_link == plan::NodeLink::kEthernet},
                {"time_scale", time_scale}};
  for (const plan::LayerRange& range : setup.stages)
    value["stages"].push_back({range.begin, range.end});
  return value;
}

plan::Deployment DeploymentOf(const json& value) {
  const json& mesh = value["mesh"];
  return {.model = ModelOf(value["model"]),
          .mesh = {.pp = mesh[0], .cp = mesh[1], .tp = mesh[2], .ep = mesh[3]},
          .hardware = HardwareOf(value["hardware"]),
          .precision = {.fp8_weights = value["fp8_weights"], .kv_bytes = value["kv_bytes"]},
          .node_link = value["ethernet"] ? plan::NodeLink::kEthernet : plan::NodeLink::kInfiniband};
}

// The layers of a rank, all its ranges one after the other.
std::vector<int> LayersOf(const json& value, const spec::Mesh& mesh, int rank) {
  std::vector<plan::LayerRange> stages;
  for (const json& range : value["stages"]) stages.push_back({range[0], range[1]});
  std::vector<int> layers;
  for (const plan::LayerRange& range : plan::RangesOfRank(stages, mesh.pp, mesh.stage_of(rank)))
    for (int layer = range.begin; layer < range.end; ++layer) layers.push_back(layer);
  return layers;
}

base::Status WriteJson(const fs::path& path, const json& value) {
  std::ofstream file(path, std::ios::binary);
  file << value.dump();
  file.close();
  if (!file) return base::Internal("cannot write '{}'", path.string());
  return base::OkStatus();
}

}  // namespace

base::Result<std::shared_ptr<const Emulation>> Emulation::Prepare(const sim::SimulationSetup& setup,
                                                                  double time_scale) {
  std::string path = fs::temp_directory_path() / "longspan_emulation_XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return base::Internal("cannot make a folder in '{}' for the emulated ranks",
                          fs::temp_directory_path().string());
  std::shared_ptr<const Emulation> emulation(new Emulation(path, setup, time_scale));
  LONGSPAN_RETURN_IF_ERROR(WriteJson(emulation->folder_ / "config.json",
                                     StandIn(setup.deployment.model, setup.deployment.mesh)));
  LONGSPAN_RETURN_IF_ERROR(
      WriteJson(emulation->folder_ / kDescription, Describe(setup, time_scale)));
  return emulation;
}

Emulation::Emulation(fs::path folder, const sim::SimulationSetup& setup, double time_scale)
    : folder_(std::move(folder)), cost_(setup.deployment), time_scale_(time_scale) {
  const int stages = setup.deployment.mesh.pp;
  for (int stage = 0; stage < stages; ++stage)
    layers_.push_back(plan::RangesOfRank(setup.stages, stages, stage));
}

std::vector<double> Emulation::StageSeconds(const engine::StepRecord& step) const {
  std::vector<plan::RowRange> slices;
  for (const engine::ComputedSlice& slice : step.slices) slices.push_back({slice.begin, slice.end});
  std::vector<double> seconds;
  for (const std::vector<plan::LayerRange>& ranges : layers_) {
    double sum = 0;
    for (const plan::LayerRange& range : ranges) sum += cost_.Seconds(range, slices, 0);
    seconds.push_back(time_scale_ * sum);
  }
  return seconds;
}

Emulation::~Emulation() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

std::string Emulation::BackendName(int rank) const {
  return fmt::format("{}{}#{}", kPrefix, folder_.string(), rank);
}

bool IsEmulated(std::string_view name) { return name.starts_with(kPrefix); }

base::Result<EmulatedRank> ReadEmulatedRank(std::string_view name) {
  const size_t mark = name.rfind('#');
  int rank = -1;
  if (IsEmulated(name) && mark != std::string_view::npos)
    std::from_chars(name.data() + mark + 1, name.data() + name.size(), rank);
  if (rank < 0) return base::InvalidArgument("'{}' is no emulated rank", name);
  const fs::path folder(name.substr(kPrefix.size(), mark - kPrefix.size()));
  LONGSPAN_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(folder / kDescription));
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object())
    return base::DataLoss("'{}' does not describe emulated ranks",
                          (folder / kDescription).string());
  const plan::Deployment deployment = DeploymentOf(value);
  const auto cost = std::make_shared<const plan::HardwareCost>(deployment);
  const double scale = value["time_scale"];
  const int model_layers = deployment.model.layers();
  return EmulatedRank{.layer_s =
                          [cost, scale, layers = LayersOf(value, deployment.mesh, rank)](
                              int layer, std::span<const plan::RowRange> slices) {
                            const int number = layers[static_cast<size_t>(layer) % layers.size()];
                            return scale * cost->Seconds({number, number + 1}, slices, 0);
                          },
                      .head_s =
                          [cost, scale, model_layers](int64_t rows) {
                            return scale * cost->Step({model_layers, model_layers}, {}, rows).head;
                          },
                      .rows_divided = deployment.mesh.cp};
}

}  // namespace longspan::apps
