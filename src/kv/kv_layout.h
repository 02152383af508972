// How many bytes the KV cache takes.
#pragma once

#include <cstdint>

#include "spec/model.h"

namespace longspan::kv {

// Keys and values of one token in one layer.
constexpr int64_t BytesPerTokenLayer(const spec::AttentionSpec& attention, int64_t element_bytes) {
  return int64_t{2} * attention.kv_heads * attention.head_dim * element_bytes;
}

}  // namespace longspan::kv
