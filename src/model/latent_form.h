// Which form of latent attention computes which slices of a step.
#pragma once

#include <cstdint>

#include "model/step.h"
#include "plan/model_work.h"

namespace longspan::model {

// Successive slices that are computed in one form.
struct LatentRun {
  bool expanded = false;
  int64_t first_slice = 0;
  int64_t slices = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

// Expanded are slices for which that is cheaper and whose rows attend to all positions before them:
// prefill, but for short chunks of long prompts and for rows that an indexer selects for. Ranks
// that divide a slice choose alike.
struct LatentFormRule {
  spec::LatentAttentionSpec latent;
  int64_t longest_dense = 0;  // slices that end further on are sparse
  bool one_form = false;      // all are absorbed
};

// Calls function(run) for runs that cover the step, in order. Where the step does not tell what its
// slices are, all are absorbed.
template <typename Function>
void ForLatentRuns(const LatentFormRule& rule, const Step& step, const Function& function) {
  const auto expanded = [&](const SliceExtent& slice) {
    return !rule.one_form && slice.end <= rule.longest_dense &&
           plan::ExpandedIsCheaper(rule.latent, slice.begin, slice.end - slice.begin);
  };
  if (step.slices.empty()) {
    function(LatentRun{.slices = step.tables.slices, .rows = step.tables.rows});
    return;
  }
  LatentRun run;
  for (const SliceExtent& slice : step.slices) {
    const bool form = expanded(slice);
    if (run.slices > 0 && run.expanded != form) {
      function(run);
      run = {.first_slice = run.first_slice + run.slices, .first_row = run.first_row + run.rows};
    }
    run.expanded = form;
    ++run.slices;
    run.rows += slice.rows;
  }
  function(run);
}

}  // namespace longspan::model
