// Which rows the next step computes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "engine/page_ledger.h"
#include "engine/sequence.h"
#include "plan/chunk_plan.h"
#include "plan/step_plan.h"

namespace longspan::engine {

struct SchedulerOptions {
  int64_t chunk_tokens = 512;  // prefill rows of a step, all prompts together
  int64_t max_running = 64;    // sequences admitted at once
  int64_t max_queued = 1024;
  int64_t max_returned_rows =
      INT64_MAX;  // prompt rows of a step whose logits go back to the leader
  bool reuse_prefixes = true;
};

// Admission and the choice of slices. Decides from its own state only: no clock, no I/O, so that
// the same calls give the same plans.
//
// Rules: sequences are admitted in the order they came, each when the pages for its prompt and
// whole output are reserved; the first ones may hold a cached prefix, which is not computed again.
// A step takes one row of every sequence that can decode, then chunks of
// prompts in the order of admission until the budget is spent. The chunks of one prompt follow each
// other without waiting for results; a step with chunks takes only decode rows whose token is
// committed, so that no chunk waits for the last stage.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, int64_t pages, int page_size);

  // Puts a sequence into the queue; ResourceExhausted when it is full. `limits` as for
  // CheckRequest.
  base::Status Enqueue(std::unique_ptr<Sequence> sequence, const RequestLimits& limits);

  // The next plan, or nothing where all that could run waits for results.
  std::optional<plan::StepPlan> Next();

  // The plan is computed on every stage. Call it before the plan's tokens are committed, since a
  // sequence may end with them.
  void OnComputed(const plan::StepPlan& plan);

  // A sequence that is queued or running; null for others.
  Sequence* Find(plan::SequenceId id);

  // Takes a sequence out and gives its pages back: the next plan may reuse them, since ranks apply
  // plans in order and what is in flight comes before.
  std::unique_ptr<Sequence> Retire(plan::SequenceId id);

  bool idle() const { return queued_.empty() && running_.empty(); }
  const PageLedger& pages() const { return pages_; }
  std::vector<plan::SequenceId> Ids() const;

  // Rows that a plan may have at most.
  int64_t max_rows() const { return options_.chunk_tokens + options_.max_running; }
  int64_t max_slices() const { return 2 * options_.max_running; }

 private:
  struct Queued {
    std::unique_ptr<Sequence> sequence;
    int64_t pages = 0;
  };

  void Admit();
  void AddDecodeRow(Sequence& sequence, plan::StepPlan& plan);
  void AddChunk(Sequence& sequence, int64_t end, plan::StepPlan& plan);
  void Announce(Sequence& sequence, plan::Slice& slice, plan::StepPlan& plan);
  void AddPromptRows(const Sequence& sequence, int64_t begin, int64_t end, plan::StepPlan& plan);
  void AddSample(Sequence& sequence, int64_t position, plan::StepPlan& plan);

  SchedulerOptions options_;
  plan::FixedChunks chunks_;
  PageLedger pages_;
  std::deque<Queued> queued_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in the order of admission
  std::vector<plan::SequenceId> released_;          // for the next plan to tell
  uint64_t last_plan_ = 0;
};

}  // namespace longspan::engine
