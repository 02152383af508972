// What context-parallel ranks receive from each other: the terms that a choice of ranks costs.
#pragma once

#include <cstdint>

#include "spec/model.h"

namespace longspan::plan {

// Bytes that one of `ranks` receives, on average over them.
struct ContextVolume {
  double per_token_layer = 0;  // what the rows of the others keep in the cache
  double per_listed_row = 0;   // hidden states at the last stage, of rows that need logits
};

// A cache with elements of `cache_bytes`, a residual stream with elements of `compute_bytes`.
// `model` is what a tensor-parallel rank has of it. Every rank has the whole cache.
ContextVolume ReplicatedVolume(const spec::ModelSpec& model, int ranks, int64_t cache_bytes,
                               int64_t compute_bytes);

}  // namespace longspan::plan
