// Which prompts get chunks of a step, and how long ones.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/chunk_cutter.h"
#include "engine/chunk_policy.h"
#include "engine/plan_builder.h"
#include "engine/sequence.h"
#include "plan/cost_fit.h"
#include "plan/urgency.h"

namespace longspan::engine {

struct ChunkLimits {
  int64_t chunk_tokens = 512;                // of a step, all prompts together
  int64_t max_returned_rows = INT64_MAX;     // of prompts whose logits go back to the leader
  std::optional<double> max_decode_stall_s;  // of a step with chunks while sequences decode
  ChunkPolicy policy;
  int page_size = 64;
};

// The most urgent prompt goes first (plan/urgency.h), then others by urgency until the budget is
// spent. "Oldest" is by admission.
//
// A prompt that overtakes the oldest one shares its step only with prompts that end in it too: the
// step is as short as it can be for them, and the chunks of the others stay whole. Planned chunks
// share a step as far as its time allows.
//
// While sequences decode, a step may be bounded by its time. Then planned chunks are planned for
// what its decode rows leave; others, and planned ones where a page takes longer, get the rows that
// there is time for.
class ChunkChoice {
 public:
  ChunkChoice(const ChunkLimits& limits, plan::PipelineCost prior)
      : limits_(limits),
        cutter_(limits.policy, limits.chunk_tokens, limits.page_size),
        time_(std::move(prior)) {}

  // Adds chunks to a plan. `prompts`: those in prefill, in the order of admission. `decoding`:
  // whether any sequence decodes.
  void Add(std::vector<Sequence*> prompts, bool decoding, base::Clock::Duration now,
           PlanBuilder& builder);

  // A step with a chunk took so long on each stage; nothing: it is computed and tells nothing.
  void OnMeasured(const plan::StepWork& work, std::span<const double> stage_seconds) {
    if (!under_way_.empty()) under_way_.pop_front();
    if (stage_seconds.empty()) return;
    time_.Add(work, stage_seconds);
    cutter_.OnMeasured(work, time_);
  }

  // The steps under way are lost, and never measured.
  void ForgetUnderWay() { under_way_.clear(); }

  const plan::PipelineFit& time() const { return time_; }

 private:
  double Seconds(int64_t begin, int64_t end) const { return time_.Seconds(begin, end); }
  double RemainingSeconds(const Sequence& sequence) const {
    return Seconds(sequence.scheduled, sequence.prefill_length());
  }
  // Of the step that is filled.
  struct Room {
    bool bounded = false;  // by the time that decodes may stall
    int64_t rows = 0;
    double seconds = 0;  // with all that is in it
    double chunk_s = 0;  // of a chunk that is alone with the step's decode rows
    double work_s = 0;   // that all prompts still have to compute
    double ahead_s = 0;  // of the longest step under way
  };
  bool IsPlanned() const { return limits_.policy.kind == ChunkPolicy::Kind::kPlanned; }
  Room RoomFor(std::span<Sequence* const> prompts, bool decoding, const PlanBuilder& builder) const;
  int64_t MostRows(const Sequence& sequence, int64_t budget) const;
  // Puts the prompt that goes first in front, and those after it by urgency.
  void Order(std::vector<Sequence*>& prompts, base::Clock::Duration now) const;
  // Where the chunk of the prompt that goes first ends. Leaves the room that others may join.
  int64_t FirstEnd(Sequence& sequence, const PlanBuilder& builder, Room& room);
  // Where a chunk ends that joins another prompt's; its begin if there is no room for it.
  int64_t JoiningEnd(Sequence& sequence, const Room& room, const PlanBuilder& builder);
  int64_t PolicyEnd(Sequence& sequence, const Room& room);
  // Where the chunk ends if the step may take so long only; not cut at multiples of anything.
  int64_t BoundedEnd(const Sequence& sequence, int64_t budget, bool first,
                     const PlanBuilder& builder) const;
  // How many of the next `rows` rows the step has time for.
  int64_t RowsInTime(const Sequence& sequence, int64_t rows, double seconds,
                     const PlanBuilder& builder) const {
    return time_.LongestChunk(builder.work(), sequence.scheduled, rows, seconds);
  }
  // Whether it has time for those up to the next page, or to the prompt's end.
  bool HasTimeForPage(const Sequence& sequence, double seconds, const PlanBuilder& builder) const;

  ChunkLimits limits_;
  ChunkCutter cutter_;
  plan::PipelineFit time_;
  plan::OvertakingDebt debt_;
  std::deque<plan::StepWork> under_way_;  // of steps with chunks that are not measured yet
  plan::SequenceId oldest_;
};

}  // namespace longspan::engine
