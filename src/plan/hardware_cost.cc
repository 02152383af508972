#include "plan/hardware_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/context_volume.h"
#include "plan/exchange_volume.h"
#include "plan/model_work.h"
#include "plan/tensor_share.h"

namespace longspan::plan {
namespace {

using spec::FeedForwardKind;

// Kernels multiply tiles of so many columns: fewer cost as much.
constexpr double kTileColumns = 128;
// How often a layer reads or writes its hidden state: two norms, two sums with the residual stream,
// and quantisation before products.
constexpr double kHiddenPasses = 12;
// Bytes of a row and one of its experts, per hidden column: put in the order of experts and read
// there in eight bits, the result written and read in sixteen.
constexpr double kExpertRowBytes = 1 + 1 + 2 + 2;
constexpr double kKernelsOfLayer = 24;
// The chunk lengths between which products are taken as a line.
constexpr int64_t kShortChunk = 2048;
constexpr int64_t kLongChunk = 16384;

double Tiled(double columns) { return std::ceil(columns / kTileColumns) * kTileColumns; }

int64_t RowsOf(std::span<const RowRange> slices) {
  int64_t rows = 0;
  for (const RowRange& slice : slices) rows += slice.end - slice.begin;
  return rows;
}

}  // namespace

HardwareCost::HardwareCost(const Deployment& deployment)
    : deployment_(deployment),
      share_(ShareOf(deployment.model, deployment.mesh.tp)),
      attention_(share_, deployment.hardware,
                 {.rows_divided = deployment.mesh.cp,
                  .kv_bytes = deployment.precision.kv_bytes,
                  .divided = deployment.divides_cache()}) {
  const spec::HardwareSpec& hardware = deployment.hardware;
  byte_seconds_ = 1 / (hardware.memory_bytes_per_s * hardware.kernels.memory);
  const double flops = deployment.precision.fp8_weights
                           ? hardware.fp8_flops * hardware.kernels.fp8_products
                           : hardware.bf16_flops * hardware.kernels.bf16_products;
  product_seconds_ = 2 / flops;
}

double HardwareCost::ProductSeconds(double rows, double inner, double columns) const {
  const double half = deployment_.hardware.kernels.half_rows;
  const double compute = (rows + half) * inner * Tiled(columns) * product_seconds_;
  const Precision& precision = deployment_.precision;
  const double bytes = inner * columns * precision.weight_bytes() +
                       rows * (inner * precision.weight_bytes() +
                               columns * static_cast<double>(precision.compute_bytes));
  return std::max(compute, bytes * byte_seconds_);
}

double HardwareCost::AttentionProducts(double rows) const {
  const double hidden = share_.hidden_size;
  if (!share_.latent_attention) {
    const spec::AttentionSpec& attention = share_.attention;
    const double query = double{1} * attention.heads * attention.head_dim;
    const double kv = double{1} * attention.kv_heads * attention.head_dim;
    return ProductSeconds(rows, hidden, query + 2 * kv) + ProductSeconds(rows, query, hidden);
  }
  const spec::LatentAttentionSpec& latent = *share_.latent_attention;
  const double query = double{1} * latent.heads * (latent.nope_dim + latent.rope_dim);
  const double down = latent.latent_rank + latent.rope_dim + latent.query_rank;
  double seconds = ProductSeconds(rows, hidden, down);
  seconds += ProductSeconds(rows, latent.query_rank == 0 ? hidden : latent.query_rank, query);
  seconds += ProductSeconds(rows, latent.latent_rank,
                            double{1} * latent.heads * (latent.nope_dim + latent.value_dim));
  seconds += ProductSeconds(rows, double{1} * latent.heads * latent.value_dim, hidden);
  if (share_.indexer) {
    const spec::IndexerSpec& indexer = *share_.indexer;
    seconds +=
        ProductSeconds(rows, latent.query_rank, double{1} * indexer.heads * indexer.head_dim);
    seconds += ProductSeconds(rows, hidden, indexer.head_dim + indexer.heads);
  }
  return seconds;
}

double HardwareCost::Experts(double rows) const {
  const spec::Mesh& mesh = deployment_.mesh;
  const spec::MoeSpec& moe = deployment_.model.moe;
  const double hidden = share_.hidden_size;
  // A group of ep ranks has the rows of all context-parallel ranks in it, and every expert's
  // columns divided over the tensor-parallel ranks beyond it.
  const double group_rows = rows * std::max(1, mesh.ep / mesh.tp);
  const double columns =
      moe.intermediate_size / static_cast<double>(std::max(1, mesh.tp / mesh.ep));
  const double local = moe.experts / static_cast<double>(mesh.ep);
  const double choices = group_rows * moe.experts_per_token;
  const double touched = std::min(local, choices / mesh.ep);
  const double per_expert = touched == 0 ? 0 : choices / mesh.ep / touched;
  return touched * (ProductSeconds(per_expert, hidden, 2 * columns) +
                    ProductSeconds(per_expert, Tiled(columns), hidden));
}

double HardwareCost::FeedForward(FeedForwardKind kind, double rows) const {
  const double hidden = share_.hidden_size;
  const auto gated = [&](double columns) {
    return ProductSeconds(rows, hidden, 2 * columns) + ProductSeconds(rows, columns, hidden);
  };
  if (kind == FeedForwardKind::kDense) return gated(share_.intermediate_size);
  double seconds = Experts(rows) + ProductSeconds(rows, hidden, share_.moe.experts);
  if (share_.moe.shared_experts > 0)
    seconds += gated(double{1} * share_.moe.shared_experts * share_.moe.intermediate_size);
  return seconds;
}

double HardwareCost::ElementwiseSeconds(FeedForwardKind kind, double rows) const {
  const spec::Mesh& mesh = deployment_.mesh;
  const double hidden = share_.hidden_size;
  double bytes =
      rows * hidden * kHiddenPasses * static_cast<double>(deployment_.precision.compute_bytes);
  if (kind == FeedForwardKind::kMoe)
    bytes += rows * std::max(1, mesh.ep / mesh.tp) * share_.moe.experts_per_token / mesh.ep *
             hidden * kExpertRowBytes;
  return bytes * byte_seconds_;
}

const spec::LinkSpec& HardwareCost::LinkBetween(int rank, int other) const {
  const spec::HardwareSpec& hardware = deployment_.hardware;
  if (rank / hardware.gpus_per_node == other / hardware.gpus_per_node) return hardware.nvlink;
  return deployment_.node_link == NodeLink::kInfiniband ? hardware.infiniband : hardware.ethernet;
}

double HardwareCost::GroupSeconds(double bytes, int ranks, double messages) const {
  const spec::HardwareSpec& hardware = deployment_.hardware;
  const double share = hardware.kernels.links;
  const double inside = bytes / (hardware.nvlink.bytes_per_s * share);
  if (ranks <= hardware.gpus_per_node) return inside + messages * hardware.nvlink.latency_s;
  // Rings that cross the nodes use the adapters of all GPUs of a node.
  const spec::LinkSpec& link = LinkBetween(0, hardware.gpus_per_node);
  const double across = bytes / (link.bytes_per_s * hardware.gpus_per_node * share);
  return std::max(inside, across) + messages * link.latency_s;
}

double HardwareCost::ContextSeconds(int64_t rows, int64_t longest) const {
  const spec::Mesh& mesh = deployment_.mesh;
  const Precision& precision = deployment_.precision;
  const auto volume_of = deployment_.divides_cache() ? ShardedVolume : ReplicatedVolume;
  const ContextVolume volume =
      volume_of(share_, mesh.cp, precision.kv_bytes, precision.compute_bytes);
  double bytes = volume.per_token_layer;
  double messages = 1;
  if (deployment_.divides_cache()) messages = 2;  // queries there, what they found back
  if (share_.indexer && longest > share_.indexer->top_k && deployment_.divides_cache()) {
    bytes += volume.per_selecting_token_layer;
    messages += 2;
  }
  return GroupSeconds(bytes * static_cast<double>(rows), mesh.stage_ranks(), messages);
}

void HardwareCost::AddCollectives(FeedForwardKind kind, int64_t rows, int64_t longest,
                                  StepSeconds& step) const {
  const spec::Mesh& mesh = deployment_.mesh;
  const Precision& precision = deployment_.precision;
  const int64_t row_bytes = share_.hidden_size * precision.compute_bytes;
  const int64_t own_rows = (rows + mesh.cp - 1) / mesh.cp;
  if (mesh.tp > 1) {
    const double bytes = TensorLayerBytes(own_rows, row_bytes, mesh.tp);
    // There and back, for each of the two sums.
    step.tensor += GroupSeconds(bytes, mesh.tp, 4);
  }
  if (mesh.cp > 1) step.context += ContextSeconds(rows, longest);
  if (mesh.ep > 1 && kind == FeedForwardKind::kMoe) {
    const ExpertVolume volume = {.ranks = mesh.ep,
                                 .hidden = share_.hidden_size,
                                 .element = precision.compute_bytes,
                                 .choices = share_.moe.experts_per_token};
    const double bytes = MeanExpertLayerBytes(volume, MeanExpertRanks(volume, share_.moe.experts),
                                              own_rows * std::max(1, mesh.ep / mesh.tp));
    step.expert += GroupSeconds(bytes, mesh.ep, 2);
  }
  step.collectives = step.tensor + step.context + step.expert;
}

StepSeconds HardwareCost::Layer(FeedForwardKind kind, int64_t rows, int64_t longest) const {
  const double own_rows = static_cast<double>(rows) / deployment_.mesh.cp;
  StepSeconds step;
  step.products = AttentionProducts(own_rows) + FeedForward(kind, own_rows);
  step.memory = ElementwiseSeconds(kind, own_rows);
  step.launches = kKernelsOfLayer * deployment_.hardware.kernels.launch_s;
  AddCollectives(kind, rows, longest, step);
  return step;
}

StepSeconds HardwareCost::Step(LayerRange layers, std::span<const RowRange> slices,
                               int64_t listed) const {
  const spec::ModelSpec& model = deployment_.model;
  const int64_t rows = RowsOf(slices);
  int64_t longest = 0;
  for (const RowRange& slice : slices) longest = std::max(longest, slice.end);
  std::array<int, 2> count = {0, 0};
  for (int layer = layers.begin; layer < layers.end; ++layer)
    ++count[static_cast<size_t>(model.feed_forward[static_cast<size_t>(layer)])];
  StepSeconds step;
  for (const FeedForwardKind kind : {FeedForwardKind::kDense, FeedForwardKind::kMoe}) {
    const double layers_of_kind = count[static_cast<size_t>(kind)];
    if (layers_of_kind == 0) continue;
    const StepSeconds layer = Layer(kind, rows, longest);
    step.products += layers_of_kind * layer.products;
    step.memory += layers_of_kind * layer.memory;
    step.collectives += layers_of_kind * layer.collectives;
    step.tensor += layers_of_kind * layer.tensor;
    step.context += layers_of_kind * layer.context;
    step.expert += layers_of_kind * layer.expert;
    step.launches += layers_of_kind * layer.launches;
  }
  for (const RowRange& slice : slices) step.attention += layers.size() * attention_.Seconds(slice);
  if (layers.end == model.layers() && listed > 0)
    step.head = ProductSeconds(static_cast<double>(listed), share_.hidden_size, share_.vocab_size);
  return step;
}

ChunkCost HardwareCost::Chunk(LayerRange layers) const {
  const AttentionTerms& terms = attention_.terms();
  const auto count = static_cast<double>(layers.size());
  const auto without_attention = [&](int64_t rows) {
    const RowRange slice = {0, rows};
    const StepSeconds step = Step(layers, {&slice, 1}, 0);
    return step.total() - step.attention;
  };
  const double slope = (without_attention(kLongChunk) - without_attention(kShortChunk)) /
                       static_cast<double>(kLongChunk - kShortChunk);
  ChunkCost cost;
  cost.per_token = slope;
  cost.per_step =
      std::max(0.0, without_attention(kShortChunk) - slope * static_cast<double>(kShortChunk));
  // Behind a prefix that is selected from, nothing of it is made once more.
  cost.per_prefix_token = terms.top_k == 0 ? count * terms.per_prefix_token : 0;
  cost.per_pair = count * terms.per_pair / 2;
  cost.per_selected_pair = count * std::max(terms.per_selected_pair, terms.per_pair) / 2;
  cost.per_index_pair = count * terms.per_index_pair / 2;
  cost.per_decode_row = slope;
  cost.per_decode_position = count * std::max(terms.per_read_token, terms.per_pair);
  cost.top_k = terms.top_k;
  return cost;
}

double HardwareCost::BoundaryLatency(int stage) const {
  const spec::Mesh& mesh = deployment_.mesh;
  const int next = (stage + 1) % mesh.pp;
  return LinkBetween(mesh.rank_of(stage, 0), mesh.rank_of(next, 0)).latency_s;
}

double HardwareCost::BoundarySeconds(int stage, int64_t rows) const {
  const spec::Mesh& mesh = deployment_.mesh;
  const int next = (stage + 1) % mesh.pp;
  const int64_t own_rows = (rows + mesh.cp - 1) / mesh.cp;
  const auto bytes =
      static_cast<double>(own_rows * share_.hidden_size * deployment_.precision.compute_bytes);
  return bytes / LinkBetween(mesh.rank_of(stage, 0), mesh.rank_of(next, 0)).bytes_per_s;
}

std::vector<double> LayerSeconds(const HardwareCost& cost, int64_t depth, int64_t rows) {
  const RowRange slice = {depth, depth + rows};
  std::vector<double> seconds;
  for (int layer = 0; layer < cost.deployment().model.layers(); ++layer)
    seconds.push_back(cost.Seconds({layer, layer + 1}, {&slice, 1}, 0));
  return seconds;
}

PipelineCost PriorCost(const HardwareCost& cost, const PipelineShape& shape,
                       std::span<const LayerRange> stages) {
  PipelineCost prior{.shape = shape};
  for (const LayerRange& layers : stages) prior.stages.push_back(cost.Chunk(layers));
  return prior;
}

}  // namespace longspan::plan
