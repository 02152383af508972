// Points in time for timed waits.
#pragma once

#include <algorithm>
#include <chrono>

namespace longspan::comm {

// `timeout` from now; at most a year, so that "for ever" (nanoseconds::max()) does not overflow.
inline std::chrono::steady_clock::time_point DeadlineAfter(std::chrono::nanoseconds timeout) {
  constexpr std::chrono::nanoseconds kYear = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() + std::min(timeout, kYear);
}

}  // namespace longspan::comm
