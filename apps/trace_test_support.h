// A small run with figures that can be worked out by hand.
#pragma once

#include <string>
#include <vector>

#include "apps/trace_events.h"
#include "engine/output.h"

namespace longspan::apps {

// Two chunks of sequence 7 through two ranks, 10 ms each; the second plan also decodes a row of
// sequence 3. In milliseconds:
//   rank 0   plan 1 from 1 to 11, host work to 12, plan 2 to 22, the transport's call to 22.5
//   rank 1   wait from 9 to 13, plan 1 to 23, plan 2 to 33
//   input    of plan 1 from 11 to 13, of plan 2 from 22 to 24: rank 1 waits for the first one
inline std::vector<engine::StepRecord> SmallRun(int64_t origin = 5'000'000'000) {
  using plan::SpanKind;
  const auto at = [&](double ms) { return origin + static_cast<int64_t>(ms * 1e6); };
  const auto span = [&](SpanKind kind, double start, double end) {
    return plan::StageSpan{kind, at(start), at(end)};
  };
  constexpr int64_t kBytes = 4096;
  engine::StepRecord first{.plan = {1}, .slices = {{{7}, 0, 64, true}}};
  first.leader = {.begin = at(0),
                  .made = at(0.25),
                  .submitted = at(0.5),
                  .commit_begin = at(23.5),
                  .committed = at(24),
                  .reports = {at(11.5), at(23.5)}};
  first.stages = {{.start = at(1),
                   .end = at(11),
                   .intake = {at(0.5), at(0.75), at(0.75)},
                   .spans = {span(SpanKind::kKernels, 1, 11)},
                   .sends = {{.posted = at(11), .bytes = kBytes}}},
                  {.start = at(9),
                   .end = at(23),
                   .intake = {at(0.5), at(0.75), at(0.875)},
                   .spans = {span(SpanKind::kWait, 9, 13), span(SpanKind::kKernels, 13, 23)},
                   .receives = {{.posted = at(0.875), .done = at(13), .bytes = kBytes}}}};
  engine::StepRecord second{.plan = {2}, .slices = {{{3}, 99, 100, false}, {{7}, 64, 128, true}}};
  second.leader = {.begin = at(0.5),
                   .made = at(0.75),
                   .submitted = at(1),
                   .commit_begin = at(33.5),
                   .committed = at(35),
                   .reports = {at(23), at(33.5)}};
  second.stages = {{.start = at(12),
                    .end = at(22.5),
                    .intake = {at(1), at(1.5), at(1.5)},
                    .spans = {span(SpanKind::kHost, 11, 12), span(SpanKind::kKernels, 12, 22),
                              span(SpanKind::kTransfer, 22, 22.5)},
                    .sends = {{.posted = at(22), .bytes = kBytes}}},
                   {.start = at(23),
                    .end = at(33),
                    .intake = {at(1), at(1.25), at(1.25)},
                    .spans = {span(SpanKind::kKernels, 23, 33)},
                    .receives = {{.posted = at(13), .done = at(24), .bytes = kBytes}}}};
  return {first, second};
}

inline std::string SmallTrace(int64_t origin = 5'000'000'000) {
  TraceEvents events(2);
  std::string text = events.Begin();
  for (const engine::StepRecord& step : SmallRun(origin)) events.Append(step, text);
  return text.append(TraceEvents::kEnd);
}

}  // namespace longspan::apps
