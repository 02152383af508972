// Logits as the ops read them, also where a model has gone wrong.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace longspan::backend::cpu {

// NaN counts as the most unlikely, infinity as the largest float: a difference of two logits is a
// number unless both are minus infinity.
inline double Logit(float value) {
  if (std::isnan(value)) return -std::numeric_limits<double>::infinity();
  return std::min<double>(value, std::numeric_limits<float>::max());
}

}  // namespace longspan::backend::cpu
