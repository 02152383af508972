// How many plans may be in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "plan/step_plan.h"

namespace longspan::engine {

struct PlanSize {
  int64_t rows = 0;
  bool has_chunk = false;
};

inline PlanSize SizeOf(const plan::StepPlan& plan) {
  const bool has_chunk =
      std::any_of(plan.slices.begin(), plan.slices.end(),
                  [](const plan::Slice& slice) { return slice.tokens.size() > 1; });
  return {.rows = plan.rows(), .has_chunk = has_chunk};
}

// Whether one more plan may follow those that are not committed yet: `most` of them, one for every
// stage and one that waits. Plans with a chunk of less than a quarter of the longest plan's rows
// (short prompts that overtook, and ends of prompts) do not count, up to as many again: they only
// queue behind longer ones, and no stage would have work on their account.
inline bool MayFollow(std::span<const PlanSize> uncommitted, int most) {
  int64_t longest = 0;
  for (const PlanSize& plan : uncommitted) longest = std::max(longest, plan.rows);
  const auto counting = std::count_if(
      uncommitted.begin(), uncommitted.end(),
      [&](const PlanSize& plan) { return !plan.has_chunk || 4 * plan.rows >= longest; });
  return counting < most && static_cast<int>(uncommitted.size()) < 2 * most;
}

}  // namespace longspan::engine
