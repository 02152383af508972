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

// What an indexer's selection takes of a row: its queries and their weights, the candidates of a
// rank (a score and a position each), and how many of these are left.
int64_t SelectionRowBytes(const spec::ModelSpec& model, int64_t compute_bytes) {
  if (!model.indexer) return 0;
  const spec::IndexerSpec& indexer = *model.indexer;
  return indexer.heads * (indexer.head_dim * compute_bytes + 4) + 8 * int64_t{indexer.top_k} + 4;
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
  constexpr int64_t kExpSumBytes = 8;
  const AttentionRow row = AttentionRowOf(model);
  const double kept = static_cast<double>(kv::BytesPerTokenLayer(model, cache_bytes)) / ranks;
  const auto attention =
      static_cast<double>(row.elements * compute_bytes + row.heads * kExpSumBytes);
  return {.per_token_layer = ShareOfOthers(ranks) * (kept + attention),
          .per_selecting_token_layer =
              ShareOfOthers(ranks) * static_cast<double>(SelectionRowBytes(model, compute_bytes)),
          .per_listed_row = ListedRowBytes(model, ranks, compute_bytes)};
}

}  // namespace longspan::plan
