#include "model/parameters.h"

#include <algorithm>

namespace longspan::model {
namespace {

int64_t LatentAttention(const spec::ModelSpec& model) {
  const spec::LatentAttentionSpec& latent = *model.latent_attention;
  const int64_t hidden = model.hidden_size;
  const int64_t heads = latent.heads;
  const int64_t query = heads * (latent.nope_dim + latent.rope_dim);
  const int64_t queries =
      latent.query_rank > 0 ? latent.query_rank * (hidden + query) : hidden * query;
  return queries + hidden * (latent.latent_rank + latent.rope_dim) +
         heads * latent.latent_rank * (latent.nope_dim + latent.value_dim) +
         heads * latent.value_dim * hidden;
}

int64_t GroupedAttention(const spec::ModelSpec& model) {
  const int64_t query = int64_t{model.attention.heads} * model.attention.head_dim;
  const int64_t kv = int64_t{model.attention.kv_heads} * model.attention.head_dim;
  return model.hidden_size * (2 * query + 2 * kv);
}

int64_t FeedForwardOf(const spec::ModelSpec& model, spec::FeedForwardKind kind) {
  const int64_t hidden = model.hidden_size;
  if (kind == spec::FeedForwardKind::kDense) return 3 * hidden * model.intermediate_size;
  const int64_t expert = 3 * hidden * model.moe.intermediate_size;
  return model.moe.experts * (hidden + expert) + model.moe.shared_experts * expert;
}

}  // namespace

int64_t Parameters(const spec::ModelSpec& model, const StagePart& part) {
  const int64_t end = int64_t{model.hidden_size} * model.vocab_size;
  int64_t count = (part.embedding ? end : 0) + (part.head ? end : 0);
  for (const plan::LayerRange& range : part.ranges) {
    for (int layer = range.begin; layer < range.end; ++layer) {
      count += model.latent_attention ? LatentAttention(model) : GroupedAttention(model);
      count += FeedForwardOf(model, model.feed_forward[layer]);
    }
  }
  return count;
}

int64_t Parameters(const spec::ModelSpec& model) {
  return Parameters(model, {.ranges = {{0, model.layers()}}});
}

int64_t ParametersOfRanks(const spec::ModelSpec& model, const spec::Mesh& mesh) {
  spec::ModelSpec without_experts = model;
  without_experts.moe.experts = 0;
  const int64_t shared = Parameters(without_experts);
  const int64_t experts = Parameters(model) - shared;
  return shared * mesh.cp + experts * mesh.stage_ranks() / std::max(mesh.tp, mesh.ep);
}

}  // namespace longspan::model
