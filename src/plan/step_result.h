// What a stage reports after a step plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/ids.h"

namespace longspan::plan {

// When and how long a stage worked on a plan; nanoseconds, start and end on the host's monotonic
// clock.
struct StageTiming {
  int64_t start = 0;     // the plan was taken up: its tables built, its input awaited
  int64_t end = 0;       // its kernels were done and its output handed to the transport
  int64_t kernels = 0;   // inside ops, waits for others not counted
  int64_t cpu = 0;       // CPU time of the stage's thread inside ops
  int64_t wait = 0;      // for the previous stage's data or for a sampled token
  int64_t transfer = 0;  // in the transport's calls: posting, and waiting for a free send buffer
};

// What came out of one listed logits row.
struct RowResult {
  uint32_t slot = 0;   // index into the plan's logits_rows
  int32_t token = -1;  // sampled, or -1
  float logprob = 0;   // of the sampled or the scored token
  std::vector<std::pair<int32_t, float>> top_logprobs;
  std::vector<float> logits;
};

// The residual stream of one row at one depth: 0 after the embedding, l after layer l - 1, and the
// number of layers after the final norm (the last layer's own output is not reported, as in the
// golden files).
struct HiddenRow {
  uint32_t slot = 0;
  int32_t depth = 0;
  std::vector<float> values;
};

struct StepResult {
  PlanNumber plan;
  Epoch epoch;
  int32_t stage = 0;
  StageTiming timing;
  std::vector<RowResult> rows;  // from the last stage only
  std::vector<HiddenRow> hidden;
  base::Status status;  // an error ends the group
};

}  // namespace longspan::plan
