#include "apps/trace_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

#include "apps/input_files.h"
#include "apps/trace_events.h"

namespace longspan::apps {
namespace {

using nlohmann::json;

// Beyond these a file is broken, not large.
constexpr double kMostMicroseconds = 1e15;
constexpr int kMostRanks = 65536;
// Sums of a start and a length are a little wrong in floating point.
constexpr double kRounding = 0.01;

// Collects events. Reading wrong members throws json::exception, caught by ParseTrace.
class TraceParser {
 public:
  base::Status Add(const json& event) {
    const std::string phase = event.at("ph");
    if (phase == "M") return AddName(event);
    if (trace_.ranks.empty()) return base::DataLoss("the line that tells the ranks is missing");
    if (phase != "X") return base::DataLoss("events of phase '{}' do not belong here", phase);
    Times times{event.at("ts").get<double>(), event.at("dur").get<double>()};
    times.end += times.start;
    if (!(std::abs(times.start) < kMostMicroseconds && times.end < kMostMicroseconds &&
          times.end >= times.start))
      return base::DataLoss("an event has impossible times");
    const std::string category = event.at("cat");
    const json& arguments = event.at("args");
    const uint64_t number = arguments.at("plan");
    if (category == "plan") return AddPlan(number, times, arguments.at("slices"));
    if (trace_.plans.empty() || trace_.plans.back().number != number)
      return base::DataLoss("an event of plan {} stands where that plan is not told", number);
    const int process = event.at("pid");
    if (process == kLeaderProcess) return AddLeader(category, times, arguments);
    const int rank = process - kFirstRankProcess;
    if (rank < 0 || rank >= static_cast<int>(trace_.ranks.size()))
      return base::DataLoss("an event of process {} does not belong to any rank", process);
    return AddRank(trace_.ranks[static_cast<size_t>(rank)], category, times, arguments);
  }

  base::Result<Trace> Take(bool ended) {
    if (trace_.ranks.empty()) return base::DataLoss("it is empty");
    if (trace_.plans.empty())
      return base::NotFound("it holds no plan: the run ended before one was computed");
    trace_.ended = ended;
    for (TraceRank& rank : trace_.ranks) {
      LONGSPAN_RETURN_IF_ERROR(Order(rank.compute));
      LONGSPAN_RETURN_IF_ERROR(Order(rank.receives));
    }
    return std::move(trace_);
  }

 private:
  struct Times {
    double start = 0;
    double end = 0;
  };

  base::Status AddName(const json& event) {
    if (event.at("name") != "longspan") return base::OkStatus();
    const int version = event.at("args").at("version");
    if (version != kTraceVersion)
      return base::DataLoss("it is of version {}, this program reads {}", version, kTraceVersion);
    const int ranks = event.at("args").at("ranks");
    if (ranks < 1 || ranks > kMostRanks || !trace_.ranks.empty())
      return base::DataLoss("the number of ranks is impossible");
    trace_.ranks.resize(static_cast<size_t>(ranks));
    return base::OkStatus();
  }

  base::Status AddPlan(uint64_t number, Times times, const json& slices) {
    TracePlan plan{.number = number, .begin = times.start};
    for (const json& entry : slices) {
      engine::ComputedSlice slice = {.sequence = {entry.at("seq").get<int64_t>()},
                                     .begin = entry.at("begin"),
                                     .end = entry.at("end"),
                                     .prefill = entry.at("prefill")};
      if (slice.begin < 0 || slice.end <= slice.begin)
        return base::DataLoss("a slice of plan {} has no tokens", number);
      plan.slices.push_back(slice);
    }
    trace_.plans.push_back(std::move(plan));
    return base::OkStatus();
  }

  base::Status AddLeader(const std::string& category, Times times, const json& arguments) {
    TracePlan& plan = trace_.plans.back();
    if (category == "submit") {
      plan.submitted = times.end;
    } else if (category == "commit") {
      plan.commit_begin = times.start;
      plan.committed = times.end;
      plan.latency = arguments.at("latency_us");
    } else {
      return base::DataLoss("the leader has no events of the category '{}'", category);
    }
    return base::OkStatus();
  }

  base::Status AddRank(TraceRank& rank, const std::string& category, Times times,
                       const json& arguments) {
    const size_t plan = trace_.plans.size() - 1;
    if (category == "receive") {
      rank.receives.push_back({.start = times.start,
                               .end = times.end,
                               .plan = plan,
                               .bytes = arguments.at("bytes"),
                               .from = arguments.at("from")});
      return base::OkStatus();
    }
    if (category == "tables") rank.tables.push_back(times.end - times.start);
    // The receiver's event tells of a transfer.
    if (category == "tables" || category == "buffer" || category == "send") return base::OkStatus();
    for (int kind = 0; kind < plan::kSpanKinds; ++kind) {
      if (category != SpanCategory(static_cast<plan::SpanKind>(kind))) continue;
      rank.compute.push_back({static_cast<plan::SpanKind>(kind), times.start, times.end, plan});
      return base::OkStatus();
    }
    return base::DataLoss("ranks have no events of the category '{}'", category);
  }

  template <typename Span>
  static base::Status Order(std::vector<Span>& spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.start != b.start ? a.start < b.start : a.end < b.end;
    });
    for (size_t i = 1; i < spans.size(); ++i)
      if (spans[i].start < spans[i - 1].end - kRounding)
        return base::DataLoss("two events of one thread overlap at {:.3f} ms",
                              spans[i].start / 1000);
    return base::OkStatus();
  }

  Trace trace_;
};

// The next line of `text`, without its end; both grow shorter.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

base::Status AddLine(TraceParser& parser, std::string_view line) {
  const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (event.is_discarded()) return base::DataLoss("the event is cut off or not valid JSON");
  try {
    return parser.Add(event);
  } catch (const json::exception&) {
    return base::DataLoss("the event lacks what the events of a trace have");
  }
}

}  // namespace

base::Result<Trace> ParseTrace(std::string_view text) {
  if (TakeLine(text) != "[") return base::DataLoss("it was not written by longspan --trace-out");
  TraceParser parser;
  bool ended = false;
  for (int64_t number = 2; !text.empty() && !ended; ++number) {
    std::string_view line = TakeLine(text);
    if (line == "]") {
      ended = true;
      continue;
    }
    if (!line.empty() && line.back() == ',') line.remove_suffix(1);
    const base::Status status = AddLine(parser, line);
    if (!status.ok()) return status.WithContext(fmt::format("line {}", number));
  }
  if (!text.empty()) return base::DataLoss("something follows its end");
  return parser.Take(ended);
}

base::Result<Trace> ReadTrace(const std::filesystem::path& path) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path));
  auto trace = ParseTrace(text);
  if (!trace.ok())
    return trace.status().WithContext(fmt::format("'{}' is no usable trace", path.string()));
  return trace;
}

}  // namespace longspan::apps
