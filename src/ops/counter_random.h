// Random numbers without state: f(seed, position, lane). The same on every backend.
#pragma once

#include <cstdint>

namespace longspan::ops {

// SplitMix64's finaliser (Steele, Lea and Flood 2014): a bijection that passes every bit to every
// bit.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t CounterBits(uint64_t seed, uint64_t position, uint64_t lane) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  return MixBits(MixBits(MixBits(seed + kGolden) + position + kGolden) + lane + kGolden);
}

// Uniform in the open interval (0, 1), 53 bits.
constexpr double CounterUniform(uint64_t seed, uint64_t position, uint64_t lane) {
  return (static_cast<double>(CounterBits(seed, position, lane) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace longspan::ops
