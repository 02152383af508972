// Which rows the next step computes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/admission_queue.h"
#include "engine/chunk_choice.h"
#include "engine/chunk_policy.h"
#include "engine/decode_groups.h"
#include "engine/page_ledger.h"
#include "engine/sequence.h"
#include "plan/cost_fit.h"
#include "plan/step_plan.h"

namespace longspan::engine {

struct SchedulerOptions {
  int64_t chunk_tokens = 512;  // prefill rows of a step, all prompts together
  int64_t max_running = 64;    // sequences admitted at once
  int64_t max_queued = 1024;
  int64_t max_returned_rows =
      INT64_MAX;  // prompt rows of a step whose logits go back to the leader
  bool reuse_prefixes = true;
  ChunkPolicy chunk_policy;
  int stages = 1;                            // groups that decodes are split into
  std::optional<double> max_decode_stall_s;  // bounds a chunk's time while others decode
  // What steps cost before any is measured. Without stages: a guess, for `stages` of them.
  plan::PipelineCost prior;
};

// Admission and the choice of slices. Decides from its own state and what it is told only: no
// clock, no I/O, so that the same calls give the same plans. A plan costs O(its tokens + sequences
// running), whatever the length of the sequences.
//
// Rules: AdmissionQueue says who starts. A step takes the rows of one group of decodes, the groups
// in turn, and chunks of prompts as ChunkChoice says. The chunks of one prompt follow each other
// without waiting for results; a step with chunks takes only decode rows whose token is committed,
// so that no chunk waits for the last stage.
//
// Where a decode finds no page to grow into, not even a cached one to evict, it waits, the youngest
// first. When more than a quarter of them wait, or all that is left waits, one is preempted: of
// those that wait with nothing in flight the one that is cheapest to compute again. It gives back
// its pages, goes back into the queue with its tokens, and goes on where it was. A sequence that is
// alone always fits, since CheckRequest has refused the others.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, int64_t pages, int page_size);

  // Puts a sequence into the queue; ResourceExhausted when it is full. `limits` as for
  // CheckRequest.
  base::Status Enqueue(std::unique_ptr<Sequence> sequence, const RequestLimits& limits);

  // The next plan, or nothing where all that could run waits for results. `now` on the clock of
  // Sequence::submitted.
  std::optional<plan::StepPlan> Next(base::Clock::Duration now = {});

  // The plan is computed on every stage. Call it before the plan's tokens are committed, since a
  // sequence may end with them.
  void OnComputed(const plan::StepPlan& plan);

  // How long every stage took for the plan in all its loops, waits for others not counted; or all
  // of them. Nothing: the plan is computed on all stages, and its times tell nothing of others.
  void OnMeasured(const plan::StepPlan& plan, std::span<const double> stage_seconds);
  void OnMeasured(const plan::StepPlan& plan, double seconds);

  // A sequence that is queued or running; null for others.
  Sequence* Find(plan::SequenceId id);

  // Takes a sequence out and gives its pages back: the next plan may reuse them, since ranks apply
  // plans in order and what is in flight comes before.
  std::unique_ptr<Sequence> Retire(plan::SequenceId id);

  // The stages are lost, and with them all KV: every running sequence goes back into the queue, to
  // be computed again from its prompt and its committed output. Pages and cached prefixes are
  // forgotten, and plans are numbered from 1.
  void RecomputeAll();

  // Forgets the cached prefixes that no sequence uses, and returns how many pages they had.
  int64_t FlushCache() { return pages_.EvictAll(); }

  bool idle() const { return queue_.empty() && running_.empty(); }
  const plan::PipelineFit& step_time() const { return chunks_.time(); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t queued() const { return queue_.size(); }
  const PageLedger& pages() const { return pages_; }
  int64_t preemptions() const { return preemptions_; }
  std::vector<plan::SequenceId> Ids() const;

  // Rows that a plan may have at most.
  int64_t max_rows() const { return options_.chunk_tokens + options_.max_running; }
  int64_t max_slices() const { return 2 * options_.max_running; }

 private:
  void Admit(base::Clock::Duration now);
  // Pages for the next row of every decode; preempts where that does not work out.
  void GrowDecodes();
  // Grows those that must. How many still wait for a page.
  int64_t TryGrowDecodes();
  bool MustPreempt(int64_t waiting) const;
  // False where none can be preempted now.
  bool PreemptOne();
  void AddDecodeRows(bool with_prefill, PlanBuilder& builder);
  // Adds the rows of the first group in turn that has any: those whose token is committed or
  // sampled by plans up to `latest_source`.
  void AddGroup(uint64_t latest_source, PlanBuilder& builder);
  bool CanDecode(const Sequence& sequence, uint64_t latest_source) const;
  // Takes it out of what runs; the ranks will hear of it. Null where it does not run.
  std::unique_ptr<Sequence> Stop(Sequence& sequence);
  // Back to what it was before it started, but for what it has generated.
  static void Rewind(Sequence& sequence);

  SchedulerOptions options_;
  PageLedger pages_;
  AdmissionQueue queue_;
  ChunkChoice chunks_;
  DecodeGroups groups_;
  int next_group_ = 0;
  bool decodes_wait_ = false;                                  // for pages
  std::vector<std::unique_ptr<Sequence>> running_;             // in the order of admission
  std::unordered_map<plan::SequenceId, Sequence*> sequences_;  // queued and running
  std::vector<plan::SequenceId> released_;                     // for the next plan to tell
  uint64_t last_plan_ = 0;
  int64_t preemptions_ = 0;
};

}  // namespace longspan::engine
