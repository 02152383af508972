// Where the time of a traced run went.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/trace_file.h"

namespace longspan::apps {

// Microseconds of a trace's time axis.
struct TraceWindow {
  double begin = 0;
  double end = 0;
  double length() const { return end - begin; }
};

// From the first rank's start to the last rank's end, and of that what lies between two times.
TraceWindow WindowOf(const Trace& trace, double from = -std::numeric_limits<double>::infinity(),
                     double to = std::numeric_limits<double>::infinity());

// Shares of a rank's time in the window. The first four are all of it.
struct RankShares {
  double busy = 0;      // in kernels
  double bubble = 0;    // waiting for data, a token or a plan
  double transfer = 0;  // in the transport's calls
  double host = 0;      // all else
  double wait = 0;      // the part of the bubble within steps: for data or a token
};

// The residual streams over one boundary.
struct BoundarySummary {
  int from = 0;
  int to = 0;
  int64_t transfers = 0;
  int64_t bytes = 0;
  double time = 0;          // microseconds on the way
  double hidden_share = 1;  // of that time the receiver did not wait
  double sender_share = 1;  // of that time the sender was in the kernels of other work
};

struct TraceSummary {
  TraceWindow window;
  int64_t plans = 0;  // submitted in the window
  std::vector<RankShares> ranks;
  RankShares all;  // the mean over the ranks
  std::vector<BoundarySummary> boundaries;
  // Microseconds; half and 99 of 100 plans stay below.
  double latency_p50 = 0;
  double latency_p99 = 0;
  double tables_p50 = 0;  // a rank builds a plan's tables, beside its compute thread
  double tables_p99 = 0;
};

TraceSummary Summarise(const Trace& trace, const TraceWindow& window);

nlohmann::ordered_json ToJson(const TraceSummary& summary);
// Some lines for people.
std::string ToText(const TraceSummary& summary);

}  // namespace longspan::apps
