#include "apps/bench_flops.h"

#include <algorithm>
#include <cmath>

#include "kv/kv_layout.h"
#include "plan/model_work.h"

namespace longspan::apps {
namespace {

int64_t MoeLayers(const spec::ModelSpec& model) {
  return std::count(model.feed_forward.begin(), model.feed_forward.end(),
                    spec::FeedForwardKind::kMoe);
}

// Of all layers, with so many experts of each mixture-of-experts layer.
double LayerParameters(const spec::ModelSpec& model, double experts) {
  const auto moe_layers = static_cast<double>(MoeLayers(model));
  const double dense_layers = model.layers() - moe_layers;
  return static_cast<double>(plan::AttentionParameters(model)) * model.layers() +
         static_cast<double>(plan::MlpParameters(model)) * dense_layers +
         plan::MoeParameters(model, experts) * moe_layers;
}

// Of rows that see depth + 1 .. depth + tokens positions, at most `most` each.
double SumOfContexts(int64_t depth, int64_t tokens, double most) {
  const auto rows = static_cast<double>(tokens);
  const double below = std::clamp(std::floor(most) - static_cast<double>(depth), 0.0, rows);
  return below * (static_cast<double>(depth) + (below + 1) / 2) + (rows - below) * most;
}

}  // namespace

int64_t MatmulParametersPerToken(const spec::ModelSpec& model) {
  return std::llround(LayerParameters(model, model.moe.experts_per_token));
}

int64_t AttentionFlopsPerContextToken(const spec::ModelSpec& model) {
  return 2 * plan::AttentionProducts(model) * model.layers();
}

int64_t IndexFlopsPerContextToken(const spec::ModelSpec& model) {
  return 2 * plan::IndexProducts(model) * model.layers();
}

double PrefillFlops(const spec::ModelSpec& model, int64_t depth, int64_t tokens) {
  const auto all = static_cast<double>(depth + tokens);
  return static_cast<double>(tokens) * 2 * static_cast<double>(MatmulParametersPerToken(model)) +
         static_cast<double>(AttentionFlopsPerContextToken(model)) *
             SumOfContexts(depth, tokens, plan::AttendedPositions(model, all)) +
         static_cast<double>(IndexFlopsPerContextToken(model)) * SumOfContexts(depth, tokens, all);
}

double DecodeBytes(const spec::ModelSpec& model, const DecodeShape& shape) {
  const auto batch = static_cast<double>(shape.batch);
  const double experts = model.moe.experts;
  const double missed =
      experts == 0 ? 1 : std::pow(1 - model.moe.experts_per_token / experts, batch);
  const double head = static_cast<double>(model.hidden_size) * model.vocab_size;
  const double weights = LayerParameters(model, experts * (1 - missed)) + head;
  const int64_t element = tensor::SizeOf(shape.kv_cache);
  const int64_t index_bytes = model.indexer ? model.indexer->head_dim * element : 0;
  const auto attended_bytes =
      static_cast<double>(kv::BytesPerTokenLayer(model, element) - index_bytes);
  const double cache = attended_bytes * plan::AttendedPositions(model, shape.context) +
                       static_cast<double>(index_bytes) * shape.context;
  return weights * static_cast<double>(tensor::SizeOf(shape.weights)) +
         cache * model.layers() * batch;
}

}  // namespace longspan::apps
