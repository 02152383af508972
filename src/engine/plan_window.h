// How many plans may be in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "plan/cost_fit.h"
#include "plan/step_plan.h"

namespace longspan::engine {

struct PlanSize {
  double seconds = 0;  // on the stage that takes longest
  bool has_chunk = false;
};

// A slice of one row counts as one that decodes.
inline void AddWork(const plan::Slice& slice, int64_t top_k, plan::StepWork& work) {
  if (slice.tokens.size() == 1) {
    work.AddDecodeRow(slice.begin, top_k);
  } else {
    work.AddChunk(slice.begin, slice.end(), top_k);
  }
}

inline plan::StepWork WorkOf(const plan::StepPlan& plan, int64_t top_k) {
  plan::StepWork work;
  for (const plan::Slice& slice : plan.slices) AddWork(slice, top_k, work);
  return work;
}

inline PlanSize SizeOf(const plan::StepPlan& plan, const plan::PipelineFit& time) {
  const plan::StepWork work = WorkOf(plan, time.top_k());
  return {.seconds = time.Seconds(work), .has_chunk = work.tokens > 0};
}

// Whether one more plan may follow those that are not committed yet: `most` of them, one for every
// stage and one that waits, and at most twice as many.
//
// A plan with chunks counts as its share of the time of the longest one, and from three quarters
// on as a whole. So the stages before the one that computes a long plan have as much work to go on
// with as `most` plans of that length, whether a prompt's short first chunks follow, its end, or
// short prompts that overtake; and a new prompt finds no more than that ahead of it.
inline bool MayFollow(std::span<const PlanSize> uncommitted, int most) {
  constexpr double kWholeShare = 0.75;
  double longest = 0;
  for (const PlanSize& plan : uncommitted) longest = std::max(longest, plan.seconds);
  double counting = 0;
  for (const PlanSize& plan : uncommitted) {
    const bool whole = !plan.has_chunk || plan.seconds >= kWholeShare * longest;
    counting += whole ? 1 : plan.seconds / longest;
  }
  return counting < most && static_cast<int>(uncommitted.size()) < 2 * most;
}

}  // namespace longspan::engine
