// Where a stage's time goes in one step.
#pragma once

#include "base/clock.h"
#include "plan/step_result.h"

namespace longspan::runtime {

// Adds the time of what it runs to one of the parts of a StageTiming. Parts do not nest.
class StepTimer {
 public:
  explicit StepTimer(plan::StageTiming& timing) : timing_(timing) {
    timing_.start = base::SteadyClock().Now().count();
  }
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // The step ends here. Not left to the destructor: by then the timing has been copied out.
  void Stop() { timing_.end = base::SteadyClock().Now().count(); }

  template <typename Function>
  auto Kernels(const Function& function) {
    const Span wall(timing_.kernels, [] { return base::SteadyClock().Now(); });
    const Span cpu(timing_.cpu, [] { return base::ThreadCpuTime(); });
    return function();
  }
  template <typename Function>
  auto Wait(const Function& function) {
    const Span wall(timing_.wait, [] { return base::SteadyClock().Now(); });
    return function();
  }
  template <typename Function>
  auto Transfer(const Function& function) {
    const Span wall(timing_.transfer, [] { return base::SteadyClock().Now(); });
    return function();
  }

 private:
  class Span {
   public:
    using Now = base::Clock::Duration (*)();
    Span(int64_t& total, Now now) : total_(total), now_(now), begin_(now()) {}
    ~Span() { total_ += (now_() - begin_).count(); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    int64_t& total_;
    Now now_;
    base::Clock::Duration begin_;
  };

  plan::StageTiming& timing_;
};

}  // namespace longspan::runtime
