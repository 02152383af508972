#include "plan/context_volume.h"

#include "kv/kv_layout.h"

namespace longspan::plan {

ContextVolume ReplicatedVolume(const spec::ModelSpec& model, int ranks, int64_t cache_bytes,
                               int64_t compute_bytes) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  return {.per_token_layer =
              others * static_cast<double>(kv::BytesPerTokenLayer(model, cache_bytes)),
          .per_listed_row = others * static_cast<double>(model.hidden_size * compute_bytes)};
}

}  // namespace longspan::plan
