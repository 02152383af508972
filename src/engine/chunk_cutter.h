// Where a prompt's next chunk ends, by the policy.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/chunk_policy.h"
#include "engine/sequence.h"
#include "plan/chunk_plan.h"
#include "plan/cost_fit.h"

namespace longspan::engine {

// Planned chunks: a prompt is planned as a whole when it gets its first one, and again when it was
// cut elsewhere, when the share of the drain that is on its account or the time that a chunk may
// take has changed much, and when measurements have left the costs that it was planned with by more
// than the fit's own error.
class ChunkCutter {
 public:
  // `chunk_tokens`: of a chunk, at most; of the first one for the quadratic policy.
  ChunkCutter(const ChunkPolicy& policy, int64_t chunk_tokens, int page_size);

  struct Limits {
    int64_t chunk_tokens = 0;  // of any chunk of this prompt
    int64_t left = 0;          // of the next one, where a step is shared; at most as many
    // Of a planned chunk in a step of its own, on the slowest rank.
    double seconds = std::numeric_limits<double>::infinity();
    double ahead_s = 0;  // plan::ChunkRequest::longest_before_s
  };
  // Where the next chunk ends. `drain_share` as in plan::ChunkRequest. A planned chunk ends at a
  // page or with its prompt: where less than a page is left it gets nothing, which is its begin.
  int64_t NextEnd(Sequence& sequence, const Limits& limits, double drain_share,
                  const plan::PipelineFit& fit);

  // The same as far as it is known without planning: a guess of the time to the next border.
  int64_t ExpectedEnd(const Sequence& sequence) const;

  // How long a step may take that more than one prompt shares: as long as the longest chunk of the
  // first one, or what suits all that they still have to compute, `work_s`, together. Infinite
  // where chunks are not chosen by their time.
  double StepSeconds(const Sequence& first, double work_s, const plan::PipelineFit& fit) const;

  // The fit has one more measurement, of this work.
  void OnMeasured(const plan::StepWork& work, const plan::PipelineFit& fit);

 private:
  bool IsPlanned(const Sequence& sequence, const Limits& limits, double drain_share) const;
  void Plan(Sequence& sequence, const Limits& limits, double drain_share,
            const plan::PipelineFit& fit);
  int64_t QuadraticEnd(const Sequence& sequence, const plan::PipelineFit& fit) const;

  ChunkPolicy policy_;
  plan::FixedChunks fixed_;
  int64_t page_size_;
  plan::PipelineCost costs_;  // that prompts are planned with
  uint64_t costs_number_ = 0;
};

}  // namespace longspan::engine
