// Numbers without state, drawn from a table: element i is
// table[CounterTableIndex(CounterTableBits(key, i / 4), i % 4)].
#pragma once

#include <cstdint>

#include "base/mix_bits.h"

namespace longspan::base {

inline constexpr int kCounterTableBits = 12;
inline constexpr int kCounterTableSize = 1 << kCounterTableBits;
// One mix of the bits serves so many elements in a row.
inline constexpr int kElementsPerMix = 4;

constexpr uint64_t CounterTableBits(uint64_t key, uint64_t block) {
  return MixBits(key + block * 0x9e3779b97f4a7c15u);
}

// Of element `lane` of a block.
constexpr uint32_t CounterTableIndex(uint64_t bits, int lane) {
  return static_cast<uint32_t>(bits >> (16 * lane + 16 - kCounterTableBits)) &
         (kCounterTableSize - 1);
}

}  // namespace longspan::base
