#include "kv/kv_layout.h"

namespace longspan::kv {

std::vector<CachePlane> CachePlanes(const spec::ModelSpec& model) {
  if (!model.latent_attention) {
    const CachePlane plane = {model.attention.kv_heads, model.attention.head_dim};
    return {plane, plane};
  }
  std::vector<CachePlane> planes = {{1, model.latent_attention->latent_rank},
                                    {1, model.latent_attention->rope_dim}};
  if (model.indexer) planes.push_back({1, model.indexer->head_dim});
  return planes;
}

int64_t BytesPerTokenLayer(const spec::ModelSpec& model, int64_t element_bytes) {
  int64_t elements = 0;
  for (const CachePlane& plane : CachePlanes(model)) elements += int64_t{plane.heads} * plane.dim;
  return elements * element_bytes;
}

}  // namespace longspan::kv
