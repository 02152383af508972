#include "sim/comm_volume.h"

#include <algorithm>

#include "plan/context_volume.h"
#include "plan/exchange_volume.h"
#include "plan/tensor_share.h"

namespace longspan::sim {
namespace {

double MoeLayers(const spec::ModelSpec& model) {
  return static_cast<double>(std::count(model.feed_forward.begin(), model.feed_forward.end(),
                                        spec::FeedForwardKind::kMoe));
}

}  // namespace

CommVolume VolumeOf(const plan::Deployment& deployment, const plan::PipelineShape& shape,
                    std::span<const plan::RowRange> steps) {
  const spec::Mesh& mesh = deployment.mesh;
  const plan::Precision& precision = deployment.precision;
  const spec::ModelSpec& model = deployment.model;
  const spec::ModelSpec share = plan::ShareOf(model, mesh.tp);
  const int64_t row_bytes = model.hidden_size * precision.compute_bytes;
  // Layers are spread over the stages.
  const double layers_of_rank = static_cast<double>(model.layers()) / mesh.pp;
  const plan::ExpertVolume experts = {.ranks = mesh.ep,
                                      .hidden = model.hidden_size,
                                      .element = precision.compute_bytes,
                                      .choices = model.moe.experts_per_token};
  const auto context_of = deployment.divides_cache() ? plan::ShardedVolume : plan::ReplicatedVolume;
  const plan::ContextVolume context =
      context_of(share, mesh.cp, precision.kv_bytes, precision.compute_bytes);
  CommVolume volume;
  for (const plan::RowRange& step : steps) {
    const int64_t rows = step.end - step.begin;
    const int64_t own_rows = (rows + mesh.cp - 1) / mesh.cp;
    if (mesh.pp > 1)
      volume.pipeline += static_cast<double>(own_rows * row_bytes) * (shape.stages() - 1) / mesh.pp;
    if (mesh.tp > 1)
      volume.tensor += layers_of_rank * plan::TensorLayerBytes(own_rows, row_bytes, mesh.tp);
    if (mesh.cp > 1) {
      const bool selects = share.indexer && step.end > share.indexer->top_k;
      volume.context +=
          layers_of_rank * static_cast<double>(rows) *
          (context.per_token_layer + (selects ? context.per_selecting_token_layer : 0));
    }
    if (mesh.ep > 1 && model.moe.experts > 0)
      volume.expert +=
          MoeLayers(model) / mesh.pp *
          plan::MeanExpertLayerBytes(experts, plan::MeanExpertRanks(experts, model.moe.experts),
                                     own_rows * std::max(1, mesh.ep / mesh.tp));
  }
  return volume;
}

}  // namespace longspan::sim
