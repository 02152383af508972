#include "plan/model_cost.h"

#include "base/check.h"
#include "plan/model_work.h"

namespace longspan::plan {

ChunkCost CostOfLayers(const spec::ModelSpec& model, const LayerRange& range, int ranks,
                       const ComputeRates& rates) {
  const auto layers = static_cast<double>(range.size());
  const double product = 1 / (rates.products_per_s * ranks);
  const double attend = 1 / (rates.attention_per_s * ranks);
  double parameters = layers * static_cast<double>(AttentionParameters(model));
  for (int layer = range.begin; layer < range.end; ++layer)
    parameters += model.feed_forward[static_cast<size_t>(layer)] == spec::FeedForwardKind::kDense
                      ? static_cast<double>(MlpParameters(model))
                      : MoeParameters(model, model.moe.experts_per_token);
  ChunkCost cost;
  cost.per_step = layers * rates.layer_seconds;
  cost.per_token = parameters * product;
  // A pair of the model counts twice in what the cost counts.
  const double per_position = layers * static_cast<double>(AttentionProducts(model)) * attend;
  cost.per_pair = cost.per_selected_pair = per_position / 2;
  if (model.latent_attention) {
    const spec::LatentAttentionSpec& latent = *model.latent_attention;
    const double heads = layers * latent.heads;
    // Keys and values of what lies before a chunk are made once more from its latents.
    cost.per_prefix_token =
        heads * latent.latent_rank * (latent.nope_dim + latent.value_dim) * product;
    // Selected positions, and those of a decode row, are attended to as latents.
    const double absorbed = heads * (2.0 * latent.latent_rank + latent.rope_dim) * attend;
    cost.per_selected_pair = absorbed / 2;
    cost.per_decode_position = absorbed;
  } else {
    cost.per_decode_position = per_position;
    constexpr double kElementBytes = 2;
    cost.per_prefix_token = layers * 2.0 * model.attention.kv_heads * model.attention.head_dim *
                            kElementBytes / (rates.cache_bytes_per_s * ranks);
  }
  if (model.indexer) {
    cost.top_k = model.indexer->top_k;
    cost.per_index_pair = layers * static_cast<double>(IndexProducts(model)) * attend / 2;
    // Where positions are selected nothing is expanded.
    cost.per_prefix_token = 0;
  }
  cost.per_decode_row = cost.per_token;
  return cost;
}

PipelineCost CostOfStages(const spec::ModelSpec& model, const PipelineShape& shape,
                          std::span<const LayerRange> stages, int stage_ranks,
                          const ComputeRates& rates) {
  LONGSPAN_CHECK(static_cast<int>(stages.size()) == shape.stages(), "layers of every stage");
  PipelineCost cost{.shape = shape, .stages = {}};
  for (const LayerRange& range : stages)
    cost.stages.push_back(CostOfLayers(model, range, stage_ranks, rates));
  return cost;
}

}  // namespace longspan::plan
