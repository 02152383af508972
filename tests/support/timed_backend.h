// A backend that computes nothing and takes the time that a formula says.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/backend.h"

namespace longspan::support {

// Seconds of one layer, of which the backend takes note in its attention op:
//   per_call + sum over the step's slices of per_row * x + per_pair * (2 L x + x^2)
// where a slice has x rows behind L positions.
struct TimedCost {
  double per_call = 0;
  double per_row = 0;
  double per_pair = 0;

  double Layer(int64_t prefix, int64_t rows) const {
    const auto x = static_cast<double>(rows);
    return per_call + per_row * x + per_pair * (2 * static_cast<double>(prefix) * x + x * x);
  }
};

// An emulated backend (backend/emulated/) whose layers cost this. Sampling draws `token`.
std::unique_ptr<ops::Backend> CreateTimedBackend(const TimedCost& cost, int32_t token = 7);

}  // namespace longspan::support
