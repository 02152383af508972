// Where a stage's time goes in one step.
#pragma once

#include <type_traits>

#include "base/clock.h"
#include "comm/transfer.h"
#include "plan/step_result.h"

namespace longspan::runtime {

// Adds the time of what it runs to one of the parts of a StageTiming, and lists it among its spans.
// What is in no part is host work. Parts do not nest. A plan that passes through the stage several
// times has a timer each time, and one timing.
class StepTimer {
 public:
  // What the thread did before the step.
  struct Before {
    int64_t last_end = 0;  // the end of its last step; 0: this is the first
    int64_t awaited = 0;   // since when it has waited for this one
  };

  // Both outlive the timer.
  StepTimer(plan::StageTiming& timing, const Before& before,
            const base::Clock& clock = base::SteadyClock())
      : timing_(timing), clock_(clock) {
    const int64_t now = Now();
    if (timing_.start == 0) timing_.start = now;
    if (before.last_end != 0) {
      AddSpan(plan::SpanKind::kHost, before.last_end, before.awaited);
      AddSpan(plan::SpanKind::kIdle, before.awaited, now);
    }
    covered_ = now;
  }
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // The step ends here. Not left to the destructor: by then the timing has been copied out.
  void Stop() {
    timing_.end = Now();
    AddSpan(plan::SpanKind::kHost, covered_, timing_.end);
  }

  template <typename Function>
  auto Kernels(const Function& function) {
    return Measured(plan::SpanKind::kKernels, timing_.kernels, [&] {
      const auto begin = base::ThreadCpuTime();
      return Then(function, [&] { timing_.cpu += (base::ThreadCpuTime() - begin).count(); });
    });
  }
  template <typename Function>
  auto Wait(const Function& function) {
    return Measured(plan::SpanKind::kWait, timing_.wait, function);
  }

  // So many nanoseconds of the last Kernels were spent waiting for other ranks of the stage: they
  // count as a wait, and stay in its span.
  void MoveToWait(int64_t nanoseconds) {
    timing_.kernels -= nanoseconds;
    timing_.wait += nanoseconds;
  }

  // Waits for an input of `bytes` whose receive was posted at `posted`.
  base::Status Receive(const comm::Transfer& received, int64_t posted, int64_t bytes);

  // Runs `post`, which posts the send of `bytes`.
  template <typename Function>
  auto Send(int64_t bytes, const Function& post) {
    timing_.sends.push_back({.posted = Now(), .bytes = bytes});
    return Measured(plan::SpanKind::kTransfer, timing_.transfer, post);
  }

 private:
  // What is shorter is not worth a span of its own.
  static constexpr int64_t kShortestSpan = 1000;

  int64_t Now() const { return clock_.Now().count(); }

  // The result of `function`, after which `done` is called.
  template <typename Function, typename Done>
  static auto Then(const Function& function, const Done& done) {
    if constexpr (std::is_void_v<decltype(function())>) {
      function();
      done();
    } else {
      auto result = function();
      done();
      return result;
    }
  }

  template <typename Function>
  auto Measured(plan::SpanKind kind, int64_t& total, const Function& function) {
    const int64_t begin = Now();
    return Then(function, [&, begin] {
      const int64_t end = Now();
      total += end - begin;
      AddPart(kind, begin, end);
    });
  }

  void AddPart(plan::SpanKind kind, int64_t begin, int64_t end) {
    if (end - begin < kShortestSpan) return;
    AddSpan(plan::SpanKind::kHost, covered_, begin);
    AddSpan(kind, begin, end);
    covered_ = end;
  }

  // Goes on with the last span where it is of the same kind and touches this one.
  void AddSpan(plan::SpanKind kind, int64_t begin, int64_t end) {
    if (end - begin < kShortestSpan) return;
    auto& spans = timing_.spans;
    const bool goes_on =
        !spans.empty() && spans.back().kind == kind && begin - spans.back().end < kShortestSpan;
    if (goes_on)
      spans.back().end = end;
    else
      spans.push_back({kind, begin, end});
  }

  plan::StageTiming& timing_;
  const base::Clock& clock_;
  int64_t covered_ = 0;  // up to here the spans tell what was done
};

// Here, where the types of what it calls are known.
inline base::Status StepTimer::Receive(const comm::Transfer& received, int64_t posted,
                                       int64_t bytes) {
  base::Status status = Wait([&] { return received.Wait(); });
  timing_.receives.push_back({posted, received.done_at().count(), bytes});
  return status;
}

}  // namespace longspan::runtime
