// What a rank reports after a step plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/exchange_volume.h"
#include "plan/ids.h"

namespace longspan::plan {

// What a stage's compute thread does.
enum class SpanKind : uint8_t {
  kKernels,   // inside ops, and waiting for other ranks of the stage between them
  kWait,      // for the previous stage's data or for a sampled token
  kTransfer,  // in the transport's calls
  kHost,      // all else of a step, and telling the leader of the step before
  kIdle,      // no plan to work on
};
inline constexpr int kSpanKinds = 5;

// A stretch of one kind on the host's monotonic clock, in nanoseconds.
struct StageSpan {
  SpanKind kind = SpanKind::kHost;
  int64_t start = 0;
  int64_t end = 0;
  friend bool operator==(const StageSpan&, const StageSpan&) = default;
};

// A residual stream on its way over a stage's boundary, in or out.
struct BoundaryTransfer {
  int64_t posted = 0;  // into a stage: or when the one before was there, if that was later
  int64_t done = 0;    // when all of it was there; 0 at the sender, who does not learn it
  int64_t bytes = 0;
  friend bool operator==(const BoundaryTransfer&, const BoundaryTransfer&) = default;
};

// What the stage did with a plan ahead of its turn, beside its compute thread.
struct IntakeTiming {
  int64_t taken = 0;   // the plan had come from the leader
  int64_t tables = 0;  // its tables were built
  int64_t posted = 0;  // it had a buffer and the receive of its (first) input was posted
  friend bool operator==(const IntakeTiming&, const IntakeTiming&) = default;
};

// When and how long a stage worked on a plan, in all its loops; nanoseconds, points in time on the
// host's monotonic clock.
struct StageTiming {
  int64_t start = 0;     // the plan was taken up: its tables built, its input awaited
  int64_t end = 0;       // its last kernels were done and its output handed to the transport
  int64_t kernels = 0;   // inside ops, waits for others not counted
  int64_t cpu = 0;       // CPU time of the stage's thread inside ops
  int64_t wait = 0;      // for the previous stage's data, a sampled token, or ranks of the stage
  int64_t transfer = 0;  // in the transport's calls: posting, and waiting for a free send buffer

  IntakeTiming intake;
  // Of the compute thread, in order: for every loop from the end of what it did before to the end
  // of this. What is shorter than a microsecond is part of what surrounds it.
  std::vector<StageSpan> spans;
  std::vector<BoundaryTransfer> sends;     // to the next stage
  std::vector<BoundaryTransfer> receives;  // from the previous one
  AxisBytes exchanged;                     // that came from other ranks of the stage

  // Host work, by the spans. Not what is left of start to end: with looped stages other plans are
  // worked on in between.
  int64_t host() const {
    int64_t sum = 0;
    for (const StageSpan& span : spans)
      if (span.kind == SpanKind::kHost) sum += span.end - span.start;
    return sum;
  }
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
  int32_t rank = 0;  // of the mesh
  StageTiming timing;
  std::vector<RowResult> rows;    // from the rank that reports for the pipeline only
  std::vector<HiddenRow> hidden;  // of every row and depth from one rank
  base::Status status;            // an error ends the group
};

}  // namespace longspan::plan
