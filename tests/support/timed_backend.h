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

// Every op is there and, but for attention (grouped and latent), none costs time or writes
// anything: activations stay what the memory holds. Sampling draws `token` for every row, with a
// log-probability of 0.
//
// A queue works like a device's: attention adds to what is queued, Synchronize and Download sleep
// until the instant at which all of it is done. That instant is absolute, so a step's layers sum
// exactly; a thread that woke up late from one step gets the delay back where the next one follows
// within a millisecond, so that a chain of steps sums exactly too. Time that the caller spends
// between steps counts. The threads of a queue are not started, and its cores are not pinned.
std::unique_ptr<ops::Backend> CreateTimedBackend(const TimedCost& cost, int32_t token = 7);

}  // namespace longspan::support
