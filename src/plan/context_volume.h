// What context-parallel ranks receive from each other: the terms that a choice of ranks costs.
#pragma once

#include <cstdint>

#include "spec/model.h"

namespace longspan::plan {

// Bytes that one of `ranks` receives, on average over them.
struct ContextVolume {
  double per_token_layer = 0;
  // Added to it where an indexer selects in a divided cache: in steps whose longest sequence is
  // longer than what is selected.
  double per_selecting_token_layer = 0;
  double per_listed_row = 0;  // hidden states at the last stage, of rows that need logits
};

// A cache with elements of `cache_bytes`, a residual stream with elements of `compute_bytes`.
// `model` is what a tensor-parallel rank has of it. Every rank has the whole cache: it gets what
// the rows of the others keep.
ContextVolume ReplicatedVolume(const spec::ModelSpec& model, int ranks, int64_t cache_bytes,
                               int64_t compute_bytes);

// The same where every rank keeps an equal number of pages: it gets what rows keep in its own ones,
// the queries of the others' rows, and for its own rows what the others' pages add, with its
// sums of exponentials. Latent attention is in its absorbed form. An indexer's queries are those of
// the others' rows too, and for its own rows a rank gets the others' candidates; of its candidates
// for the others' rows it is told how many are left.
ContextVolume ShardedVolume(const spec::ModelSpec& model, int ranks, int64_t cache_bytes,
                            int64_t compute_bytes);

}  // namespace longspan::plan
