#include "base/clock.h"

#include <ctime>

namespace longspan::base {
namespace {

Clock::Duration Read(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

class MonotonicClock : public Clock {
 public:
  Duration Now() const override { return Read(CLOCK_MONOTONIC); }
};

}  // namespace

const Clock& SteadyClock() {
  static const MonotonicClock clock;
  return clock;
}

Clock::Duration ThreadCpuTime() { return Read(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace longspan::base
