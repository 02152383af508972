// How long attention takes on a GPU, from what the GPU can do: of one layer, on one rank.
#pragma once

#include <cstdint>

#include "spec/hardware.h"
#include "spec/model.h"

namespace longspan::plan {

// Seconds per unit of work. A pair is a row with one position that it attends to.
struct AttentionTerms {
  double per_prefix_token = 0;   // latent attention, expanded: keys and values made once more
  double per_pair = 0;           // with positions that are all attended to
  double per_selected_pair = 0;  // with positions that an indexer has selected
  double per_index_pair = 0;     // the indexer's products and its selection, of all pairs
  double per_read_token = 0;     // of the cache, once: what attention takes at least
  int64_t top_k = 0;             // 0: no indexer
};

// Rows of one sequence that are computed together.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};

class AttentionCost {
 public:
  struct Cache {
    int rows_divided = 1;  // over so many context-parallel ranks
    int64_t kv_bytes = 2;  // of an element
    // Page by page over these ranks: attention is in its absorbed form, and a rank reads its own.
    bool divided = false;
  };

  // `share` is what a tensor-parallel rank has of a model (plan::ShareOf).
  AttentionCost(const spec::ModelSpec& share, const spec::HardwareSpec& hardware,
                const Cache& cache);

  // In the cheaper form, where attention has two: expanded, a position's keys and values are made
  // from its latent; absorbed, queries attend to the latents themselves, over longer products.
  double Seconds(const RowRange& slice) const;
  bool IsExpanded(const RowRange& slice) const;

  // Of the form that prefill takes with large chunks.
  const AttentionTerms& terms() const { return expanded_; }

 private:
  double SecondsOf(const AttentionTerms& terms, const RowRange& slice) const;

  bool has_two_forms_;
  AttentionTerms expanded_;  // grouped-query attention has only this
  AttentionTerms absorbed_;
};

}  // namespace longspan::plan
