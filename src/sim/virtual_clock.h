// The time of a simulation.
#pragma once

#include "base/check.h"
#include "base/clock.h"

namespace longspan::sim {

// Stands still until it is advanced. One thread.
class VirtualClock : public base::Clock {
 public:
  Duration Now() const override { return now_; }
  // Never backwards.
  void AdvanceTo(Duration time) {
    LONGSPAN_CHECK(time >= now_, "time goes back");
    now_ = time;
  }

 private:
  Duration now_{};
};

}  // namespace longspan::sim
