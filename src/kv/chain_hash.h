// Names a page by all tokens from the sequence's start to the page's end.
#pragma once

#include <cstdint>
#include <span>

#include "base/mix_bits.h"

namespace longspan::kv {

// 128 bits, so that pages outside this process can be found by it too: a page's content is
// addressed by this and the model's fingerprint.
struct ChainHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const ChainHash&, const ChainHash&) = default;
};

// The hash of `prefix` and one more page. Not cryptographic: who finds a page by it compares the
// tokens as well.
inline ChainHash HashPage(ChainHash prefix, std::span<const int32_t> tokens) {
  // Two chains of bijections; the odd factor and the shifted start keep them apart.
  ChainHash hash = {.low = base::MixBits(prefix.low + tokens.size()),
                    .high = base::MixBits(prefix.high + 0x9e3779b97f4a7c15u)};
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t next = i + 1 < tokens.size() ? static_cast<uint32_t>(tokens[i + 1]) : 0;
    const uint64_t bits = static_cast<uint32_t>(tokens[i]) | next << 32;
    hash.low = base::MixBits(hash.low ^ bits);
    hash.high = base::MixBits(hash.high + bits * 0xd6e8feb86659fd93u);
  }
  return hash;
}

}  // namespace longspan::kv
