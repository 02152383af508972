#include "plan/context_volume.h"

#include "kv/kv_layout.h"

namespace longspan::plan {

namespace {

double ShareOfOthers(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

double ListedRowBytes(const spec::ModelSpec& model, int ranks, int64_t compute_bytes) {
  return ShareOfOthers(ranks) * static_cast<double>(model.hidden_size * compute_bytes);
}

// Elements of a row's queries and of what attention makes of them, and its heads.
struct AttentionRow {
  int64_t elements = 0;
  int64_t heads = 0;
};

AttentionRow AttentionRowOf(const spec::ModelSpec& model) {
  if (model.latent_attention) {
    const spec::LatentAttentionSpec& latent = *model.latent_attention;
    return {int64_t{latent.heads} * (2 * latent.latent_rank + latent.rope_dim), latent.heads};
  }
  return {int64_t{2} * model.attention.heads * model.attention.head_dim, model.attention.heads};
}

}  // namespace

ContextVolume ReplicatedVolume(const spec::ModelSpec& model, int ranks, int64_t cache_bytes,
                               int64_t compute_bytes) {
  return {.per_token_layer = ShareOfOthers(ranks) *
                             static_cast<double>(kv::BytesPerTokenLayer(model, cache_bytes)),
          .per_listed_row = ListedRowBytes(model, ranks, compute_bytes)};
}

ContextVolume ShardedVolume(const spec::ModelSpec& model, int ranks, int64_t cache_bytes,
                            int64_t compute_bytes) {
  constexpr int64_t kLogSumBytes = 4;
  const AttentionRow row = AttentionRowOf(model);
  const double kept = static_cast<double>(kv::BytesPerTokenLayer(model, cache_bytes)) / ranks;
  const auto attention =
      static_cast<double>(row.elements * compute_bytes + row.heads * kLogSumBytes);
  return {.per_token_layer = ShareOfOthers(ranks) * (kept + attention),
          .per_listed_row = ListedRowBytes(model, ranks, compute_bytes)};
}

}  // namespace longspan::plan
