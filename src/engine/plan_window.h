// How many plans may be in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "plan/step_plan.h"
#include "plan/step_time.h"

namespace longspan::engine {

struct PlanSize {
  plan::StepWork work;
  bool has_chunk = false;
};

inline PlanSize SizeOf(const plan::StepPlan& plan) {
  PlanSize size;
  for (const plan::Slice& slice : plan.slices) {
    size.work.Add(slice.begin, slice.end());
    size.has_chunk = size.has_chunk || slice.tokens.size() > 1;
  }
  return size;
}

// Whether one more plan may follow those that are not committed yet: `most` of them, one for every
// stage and one that waits, and at most twice as many.
//
// A plan with chunks counts as its share of the time of the longest one, and from three quarters
// on as a whole. So the stages before the one that computes a long plan have as much work to go on
// with as `most` plans of that length, whether a prompt's short first chunks follow, its end, or
// short prompts that overtake; and a new prompt finds no more than that ahead of it.
inline bool MayFollow(std::span<const PlanSize> uncommitted, const plan::StepTimeModel& time,
                      int most) {
  constexpr double kWholeShare = 0.75;
  double longest = 0;
  for (const PlanSize& plan : uncommitted) longest = std::max(longest, time.Seconds(plan.work));
  double counting = 0;
  for (const PlanSize& plan : uncommitted) {
    const double seconds = time.Seconds(plan.work);
    const bool whole = !plan.has_chunk || seconds >= kWholeShare * longest;
    counting += whole ? 1 : seconds / longest;
  }
  return counting < most && static_cast<int>(uncommitted.size()) < 2 * most;
}

}  // namespace longspan::engine
