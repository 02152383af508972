// What one token keeps in the KV cache.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/model.h"

namespace longspan::kv {

// One array of a layer's cache. A page of it is laid out [head][token][dim].
struct CachePlane {
  int heads = 0;
  int dim = 0;
};

// The places of the planes of a layer, by kind of attention.
inline constexpr int kKeyPlane = 0;       // grouped-query attention
inline constexpr int kValuePlane = 1;     //
inline constexpr int kLatentPlane = 0;    // latent attention: the latent after its norm,
inline constexpr int kRopeKeyPlane = 1;   // the rotated key that all heads share,
inline constexpr int kIndexKeyPlane = 2;  // and with an indexer its key
inline constexpr int kMaxCachePlanes = 3;

// The planes of every layer: keys and values of all KV heads; or latent, rope key and index key of
// latent attention, whatever the number of heads.
std::vector<CachePlane> CachePlanes(const spec::ModelSpec& model);

// The planes of one token in one layer.
int64_t BytesPerTokenLayer(const spec::ModelSpec& model, int64_t element_bytes);

}  // namespace longspan::kv
