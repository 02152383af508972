#include "plan/model_work.h"

#include <algorithm>

namespace longspan::plan {
namespace {

int64_t GatedMlpParameters(const spec::ModelSpec& model, int intermediate_size) {
  return 3 * int64_t{model.hidden_size} * intermediate_size;
}

int64_t LatentAttentionParameters(const spec::ModelSpec& model) {
  const spec::LatentAttentionSpec& latent = *model.latent_attention;
  const int64_t hidden = model.hidden_size;
  const int64_t heads = latent.heads;
  const int64_t queries = heads * (latent.nope_dim + latent.rope_dim);
  int64_t count =
      latent.query_rank == 0 ? hidden * queries : (hidden + queries) * int64_t{latent.query_rank};
  count += hidden * (latent.latent_rank + latent.rope_dim);
  count += heads * latent.latent_rank * (latent.nope_dim + latent.value_dim);
  count += heads * latent.value_dim * hidden;
  if (model.indexer) {
    const spec::IndexerSpec& indexer = *model.indexer;
    count += int64_t{latent.query_rank} * indexer.heads * indexer.head_dim;
    count += hidden * (indexer.head_dim + indexer.heads);
  }
  return count;
}

}  // namespace

int64_t AttentionParameters(const spec::ModelSpec& model) {
  if (model.latent_attention) return LatentAttentionParameters(model);
  const spec::AttentionSpec& attention = model.attention;
  const int64_t query_and_output = 2 * int64_t{attention.heads} * attention.head_dim;
  const int64_t key_and_value = 2 * int64_t{attention.kv_heads} * attention.head_dim;
  return model.hidden_size * (query_and_output + key_and_value);
}

int64_t MlpParameters(const spec::ModelSpec& model) {
  return GatedMlpParameters(model, model.intermediate_size);
}

double MoeParameters(const spec::ModelSpec& model, double experts) {
  const auto router = static_cast<double>(int64_t{model.hidden_size} * model.moe.experts);
  return router + (experts + model.moe.shared_experts) *
                      static_cast<double>(GatedMlpParameters(model, model.moe.intermediate_size));
}

int64_t AttentionProducts(const spec::ModelSpec& model) {
  if (!model.latent_attention) return 2 * int64_t{model.attention.heads} * model.attention.head_dim;
  const spec::LatentAttentionSpec& latent = *model.latent_attention;
  return int64_t{latent.heads} * (latent.nope_dim + latent.rope_dim + latent.value_dim);
}

bool ExpandedIsCheaper(const spec::LatentAttentionSpec& latent, int64_t begin, int64_t rows) {
  const double rank = latent.latent_rank;
  const double expanded_dims = latent.nope_dim + latent.value_dim;
  // The absorbed form expands the rows' own queries and sums with the same matrices, as many as the
  // expanded form makes keys and values of these rows' positions.
  const double positions = static_cast<double>(begin);
  const double pairs = static_cast<double>(rows) * (positions + static_cast<double>(rows + 1) / 2);
  return positions * expanded_dims * rank < pairs * (2 * rank - expanded_dims);
}

int64_t IndexProducts(const spec::ModelSpec& model) {
  return model.indexer ? int64_t{model.indexer->heads} * model.indexer->head_dim : 0;
}

double AttendedPositions(const spec::ModelSpec& model, double context) {
  return model.indexer ? std::min<double>(context, model.indexer->top_k) : context;
}

}  // namespace longspan::plan
