// Time as an interface, so that simulation and tests can bring their own.
#pragma once

#include <chrono>

namespace longspan::base {

// A monotonic clock. Implementations are thread-safe.
class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  virtual ~Clock() = default;
  // Time since an arbitrary origin; on one host the same origin in every process for SteadyClock().
  virtual Duration Now() const = 0;
};

// CLOCK_MONOTONIC. Lives for the whole program.
const Clock& SteadyClock();

// CPU time that the calling thread has used so far.
Clock::Duration ThreadCpuTime();

inline double Seconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace longspan::base
