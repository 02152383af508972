// Reads what `--trace-out` wrote (trace_events.h has the form).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/output.h"

namespace longspan::apps {

// Times are microseconds on the leader's clock. `plan` is an index into Trace::plans.
struct TraceSpan {
  plan::SpanKind kind = plan::SpanKind::kHost;
  double start = 0;
  double end = 0;
  size_t plan = 0;
};

struct TraceTransfer {
  double start = 0;
  double end = 0;
  size_t plan = 0;
  int64_t bytes = 0;
  int from = 0;
};

// What one rank did; each list is ordered and without overlaps.
struct TraceRank {
  std::vector<TraceSpan> compute;
  std::vector<TraceTransfer> receives;
  std::vector<double> tables;  // how long each plan's took to build
};

struct TracePlan {
  uint64_t number = 0;
  std::vector<engine::ComputedSlice> slices;
  double begin = 0;      // the leader makes it
  double submitted = 0;  // and has given it to all ranks
  double commit_begin = 0;
  double committed = 0;
  double latency = 0;  // from submitted to committed
};

struct Trace {
  std::vector<TraceRank> ranks;
  std::vector<TracePlan> plans;
  bool ended = false;  // false: the run was cut off
};

// DataLoss for a file that is no such trace or is broken, with the line; NotFound where it has no
// plan at all.
base::Result<Trace> ReadTrace(const std::filesystem::path& path);
// The same of a file's text.
base::Result<Trace> ParseTrace(std::string_view text);

}  // namespace longspan::apps
