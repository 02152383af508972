#include "plan/attention_cost.h"

#include <algorithm>

#include "kv/kv_layout.h"

namespace longspan::plan {
namespace {

// Sparse attention kernels take a multiple of so many query heads.
constexpr int64_t kSparseHeads = 64;
// Scores of index pairs are written in f32, and read twice to find the best ones.
constexpr double kIndexPairBytes = 4 * 3;
// A row's last tile of keys is computed as a whole: on average half of it is masked.
constexpr double kMaskedPairs = 64;
constexpr double kComputeBytes = 2;

double SquareSum(int64_t begin, int64_t end) {
  return static_cast<double>(end - begin) * static_cast<double>(begin + end);
}

}  // namespace

AttentionCost::AttentionCost(const spec::ModelSpec& share, const spec::HardwareSpec& hardware,
                             const Cache& cache)
    : has_two_forms_(share.latent_attention.has_value()) {
  const spec::KernelSpec& kernels = hardware.kernels;
  // Of a multiply-add; what is done row by row is divided over the ranks.
  const double dense = 2 / (hardware.bf16_flops * kernels.attention) / cache.rows_divided;
  const double byte = 1 / (hardware.memory_bytes_per_s * kernels.memory);
  const double read = byte / (cache.divided ? cache.rows_divided : 1);
  expanded_.per_read_token =
      static_cast<double>(kv::BytesPerTokenLayer(share, cache.kv_bytes)) * read;
  if (!share.latent_attention) {
    expanded_.per_pair = dense * 2 * share.attention.heads * share.attention.head_dim;
    return;
  }
  const spec::LatentAttentionSpec& latent = *share.latent_attention;
  const double heads = latent.heads;
  const double absorbed_products = 2.0 * latent.latent_rank + latent.rope_dim;
  if (share.indexer) {
    const spec::IndexerSpec& indexer = *share.indexer;
    const int64_t tiles = (latent.heads + kSparseHeads - 1) / kSparseHeads;
    const auto padded = static_cast<double>(tiles * kSparseHeads);
    expanded_.top_k = indexer.top_k;
    expanded_.per_selected_pair = 2 / (hardware.bf16_flops * kernels.sparse_attention) /
                                  cache.rows_divided * padded * absorbed_products;
    expanded_.per_index_pair =
        (2.0 * indexer.heads * indexer.head_dim / (hardware.fp8_flops * kernels.index) +
         kIndexPairBytes * byte) /
        cache.rows_divided;
    // Index keys; latents are read as they are selected.
    expanded_.per_read_token = static_cast<double>(indexer.head_dim * cache.kv_bytes) * read;
  }
  absorbed_ = expanded_;
  absorbed_.per_pair = dense * heads * absorbed_products;
  if (cache.divided) {
    expanded_ = absorbed_;
    has_two_forms_ = false;
    return;
  }
  expanded_.per_pair = dense * heads * (latent.nope_dim + latent.rope_dim + latent.value_dim);
  // Every rank needs all positions. What is made is written and read once.
  const double made = heads * (latent.nope_dim + latent.value_dim);
  expanded_.per_prefix_token =
      2 * made * latent.latent_rank / (hardware.bf16_flops * kernels.bf16_products) +
      2 * kComputeBytes * (made + heads * latent.rope_dim) * byte;
}

double AttentionCost::SecondsOf(const AttentionTerms& terms, const RowRange& slice) const {
  const auto rows = static_cast<double>(slice.end - slice.begin);
  const int64_t dense_end =
      terms.top_k == 0 ? slice.end : std::clamp(terms.top_k, slice.begin, slice.end);
  const auto dense_rows = static_cast<double>(dense_end - slice.begin);
  double seconds = 0;
  if (dense_rows > 0)
    seconds += terms.per_prefix_token * static_cast<double>(slice.begin) +
               terms.per_pair * (SquareSum(slice.begin, dense_end) / 2 +
                                 std::min(kMaskedPairs, dense_rows) * dense_rows);
  if (dense_end < slice.end)
    seconds += terms.per_selected_pair * static_cast<double>(terms.top_k) * (rows - dense_rows) +
               terms.per_index_pair * SquareSum(slice.begin, slice.end) / 2;
  return std::max(seconds, terms.per_read_token * static_cast<double>(slice.end));
}

double AttentionCost::Seconds(const RowRange& slice) const {
  const double expanded = SecondsOf(expanded_, slice);
  return has_two_forms_ ? std::min(expanded, SecondsOf(absorbed_, slice)) : expanded;
}

bool AttentionCost::IsExpanded(const RowRange& slice) const {
  return has_two_forms_ && SecondsOf(expanded_, slice) <= SecondsOf(absorbed_, slice);
}

}  // namespace longspan::plan
