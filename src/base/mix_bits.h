// A mixing function for random numbers without state and for hashes.
#pragma once

#include <cstdint>

namespace longspan::base {

// SplitMix64's finaliser (Steele, Lea and Flood 2014): a bijection that passes every bit to every
// bit.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace longspan::base
