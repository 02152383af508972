// Random numbers without state: f(seed, position, lane). The same on every backend.
#pragma once

#include <cstdint>

#include "base/mix_bits.h"

namespace longspan::ops {

constexpr uint64_t CounterBits(uint64_t seed, uint64_t position, uint64_t lane) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  using base::MixBits;
  return MixBits(MixBits(MixBits(seed + kGolden) + position + kGolden) + lane + kGolden);
}

// Uniform in the open interval (0, 1), 53 bits.
constexpr double CounterUniform(uint64_t seed, uint64_t position, uint64_t lane) {
  return (static_cast<double>(CounterBits(seed, position, lane) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace longspan::ops
