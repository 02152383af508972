#include "apps/bench_flops.h"

#include <algorithm>
#include <cmath>

#include "kv/kv_layout.h"

namespace longspan::apps {
namespace {

int64_t AttentionParameters(const spec::ModelSpec& model) {
  const spec::AttentionSpec& attention = model.attention;
  const int64_t query_and_output = 2 * int64_t{attention.heads} * attention.head_dim;
  const int64_t key_and_value = 2 * int64_t{attention.kv_heads} * attention.head_dim;
  return model.hidden_size * (query_and_output + key_and_value);
}

// Gate, up and down.
int64_t GatedMlpParameters(const spec::ModelSpec& model, int intermediate_size) {
  return 3 * int64_t{model.hidden_size} * intermediate_size;
}

int64_t RouterParameters(const spec::ModelSpec& model) {
  return int64_t{model.hidden_size} * model.moe.experts;
}

int64_t MoeLayers(const spec::ModelSpec& model) {
  return std::count(model.feed_forward.begin(), model.feed_forward.end(),
                    spec::FeedForwardKind::kMoe);
}

// Of all layers, with so many experts of each mixture-of-experts layer.
double LayerParameters(const spec::ModelSpec& model, double experts) {
  const auto moe_layers = static_cast<double>(MoeLayers(model));
  const double dense_layers = model.layers() - moe_layers;
  const double moe =
      static_cast<double>(RouterParameters(model)) +
      experts * static_cast<double>(GatedMlpParameters(model, model.moe.intermediate_size));
  return static_cast<double>(AttentionParameters(model)) * model.layers() +
         static_cast<double>(GatedMlpParameters(model, model.intermediate_size)) * dense_layers +
         moe * moe_layers;
}

}  // namespace

int64_t MatmulParametersPerToken(const spec::ModelSpec& model) {
  return std::llround(LayerParameters(model, model.moe.experts_per_token));
}

int64_t AttentionFlopsPerContextToken(const spec::ModelSpec& model) {
  // Two products, queries with keys and probabilities with values.
  return int64_t{4} * model.attention.heads * model.attention.head_dim * model.layers();
}

double PrefillFlops(const spec::ModelSpec& model, int64_t depth, int64_t tokens) {
  const auto rows = static_cast<double>(tokens);
  const double context = static_cast<double>(depth) + (rows + 1) / 2;
  return rows * (2 * static_cast<double>(MatmulParametersPerToken(model)) +
                 static_cast<double>(AttentionFlopsPerContextToken(model)) * context);
}

double DecodeBytes(const spec::ModelSpec& model, const DecodeShape& shape) {
  const auto batch = static_cast<double>(shape.batch);
  const double experts = model.moe.experts;
  const double missed =
      experts == 0 ? 1 : std::pow(1 - model.moe.experts_per_token / experts, batch);
  const double head = static_cast<double>(model.hidden_size) * model.vocab_size;
  const double weights = LayerParameters(model, experts * (1 - missed)) + head;
  const double kv_per_token =
      static_cast<double>(kv::BytesPerTokenLayer(model, tensor::SizeOf(shape.kv_cache))) *
      model.layers();
  return weights * static_cast<double>(tensor::SizeOf(shape.weights)) +
         kv_per_token * shape.context * batch;
}

}  // namespace longspan::apps
