// Writes what the scheduler has chosen into a plan.
#pragma once

#include <vector>

#include "engine/sequence.h"
#include "plan/chunk_cost.h"
#include "plan/step_plan.h"

namespace longspan::engine {

// O(tokens of the plan), however long the sequences are; but a start with penalties, which carries
// what they look at.
class PlanBuilder {
 public:
  // `top_k` of the costs that its work is counted for.
  PlanBuilder(plan::PlanNumber number, int page_size, int64_t top_k)
      : page_size_(page_size), top_k_(top_k) {
    plan_.number = number;
  }

  // The sequence's next row, which samples. It has a page for it.
  void AddDecodeRow(Sequence& sequence);

  // Its known tokens up to `end`; the last of them samples the first token of the output.
  void AddChunk(Sequence& sequence, int64_t end);

  bool empty() const { return plan_.slices.empty(); }
  plan::PlanNumber number() const { return plan_.number; }
  const plan::StepWork& work() const { return work_; }  // of all slices
  plan::StepPlan Finish(std::vector<plan::SequenceId> released);

 private:
  void AddSlice(Sequence& sequence, plan::Slice slice);
  void AddPromptRows(const Sequence& sequence, int64_t begin, int64_t end);
  void AddSample(Sequence& sequence, int64_t position);

  int page_size_;
  int64_t top_k_;
  plan::StepPlan plan_;
  plan::StepWork work_;
};

}  // namespace longspan::engine
