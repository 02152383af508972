// The DeepSeek models that have golden files, and how near each must come to them.
#pragma once

#include <ostream>
#include <span>

#include "tests/engine/golden.h"

namespace longspan::testing {

// Where two positions have scores so close that another order of sums may select the other one, or
// two experts likewise, float32 results may differ by more than roundings.
struct DeepseekCase {
  const char* model;
  double tolerance;
};
inline constexpr DeepseekCase kDeepseekCases[] = {
    {"rand-deepseek-v32", 1e-4},
    {"tiny-deepseek-v3", 1e-4},
    {"tiny-deepseek-v32", 1e-3},
    {"tiny-deepseek-v32-fp8", 1e-3},
};

// Those of trained models, which are fixtures.
inline constexpr std::span kTrainedDeepseekCases = std::span(kDeepseekCases).subspan(1);

inline void PrintTo(const DeepseekCase& c, std::ostream* out) { *out << c.model; }

}  // namespace longspan::testing
