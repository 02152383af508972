#include "apps/trace_summary.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "apps/bench_table.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;
using plan::SpanKind;

constexpr double kMicrosecondsPerMs = 1000;

// How much of [start, end) lies in the window.
double Within(const TraceWindow& window, double start, double end) {
  return std::max(0.0, std::min(end, window.end) - std::max(start, window.begin));
}

RankShares SharesOf(const TraceRank& rank, const TraceWindow& window) {
  std::array<double, plan::kSpanKinds> time{};
  for (const TraceSpan& span : rank.compute)
    time[static_cast<size_t>(span.kind)] += Within(window, span.start, span.end);
  if (window.length() <= 0) return {.bubble = 1};
  const auto share = [&](SpanKind kind) {
    return time[static_cast<size_t>(kind)] / window.length();
  };
  RankShares shares = {.busy = share(SpanKind::kKernels),
                       .transfer = share(SpanKind::kTransfer),
                       .host = share(SpanKind::kHost),
                       .wait = share(SpanKind::kWait)};
  // Also what no event tells: before the first plan, after the last one.
  shares.bubble = std::max(0.0, 1 - shares.busy - shares.transfer - shares.host);
  return shares;
}

RankShares MeanOf(const std::vector<RankShares>& ranks) {
  RankShares mean;
  for (const RankShares& rank : ranks)
    for (const auto part : {&RankShares::busy, &RankShares::bubble, &RankShares::transfer,
                            &RankShares::host, &RankShares::wait})
      mean.*part += rank.*part / static_cast<double>(ranks.size());
  return mean;
}

// How much of [start, end) the rank spent in spans of a kind, which are in order.
double TimeIn(SpanKind kind, const TraceRank& rank, double start, double end) {
  double time = 0;
  auto span = std::partition_point(rank.compute.begin(), rank.compute.end(),
                                   [&](const TraceSpan& before) { return before.end <= start; });
  for (; span != rank.compute.end() && span->start < end; ++span)
    if (span->kind == kind) time += Within({start, end}, span->start, span->end);
  return time;
}

BoundarySummary Boundary(const Trace& trace, size_t receiver, const TraceWindow& window) {
  BoundarySummary boundary{.to = static_cast<int>(receiver)};
  double waited = 0;
  double sender_computed = 0;
  for (const TraceTransfer& transfer : trace.ranks[receiver].receives) {
    if (transfer.end < window.begin || transfer.end > window.end) continue;
    ++boundary.transfers;
    boundary.bytes += transfer.bytes;
    boundary.time += transfer.end - transfer.start;
    boundary.from = transfer.from;
    waited += TimeIn(SpanKind::kWait, trace.ranks[receiver], transfer.start, transfer.end);
    const auto sender = static_cast<size_t>(transfer.from);
    if (sender < trace.ranks.size())
      sender_computed +=
          TimeIn(SpanKind::kKernels, trace.ranks[sender], transfer.start, transfer.end);
  }
  if (boundary.time > 0) {
    boundary.hidden_share = 1 - waited / boundary.time;
    boundary.sender_share = sender_computed / boundary.time;
  }
  return boundary;
}

// The value that a share of them does not exceed: the smallest such one of the list.
double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto wanted = values.begin() + static_cast<int64_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), wanted, values.end());
  return *wanted;
}

ordered_json SharesJson(const RankShares& shares) {
  return {{"busy", shares.busy},
          {"bubble", shares.bubble},
          {"transfer", shares.transfer},
          {"host", shares.host},
          {"wait", shares.wait}};
}

std::vector<std::string> SharesCells(std::string name, const RankShares& shares) {
  std::vector<std::string> cells = {std::move(name)};
  for (const double share : {shares.busy, shares.bubble, shares.transfer, shares.host, shares.wait})
    cells.push_back(fmt::format("{:.2f}", 100 * share));
  return cells;
}

}  // namespace

TraceWindow WindowOf(const Trace& trace, double from, double to) {
  TraceWindow window = {std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity()};
  for (const TraceRank& rank : trace.ranks) {
    if (rank.compute.empty()) continue;
    window.begin = std::min(window.begin, rank.compute.front().start);
    window.end = std::max(window.end, rank.compute.back().end);
  }
  window.begin = std::max(window.begin, from);
  window.end = std::min(window.end, to);
  // Nothing at all is an empty window somewhere finite.
  if (!(window.begin <= window.end)) return {};
  return window;
}

TraceSummary Summarise(const Trace& trace, const TraceWindow& window) {
  TraceSummary summary = {.window = window};
  std::vector<double> tables;
  for (size_t i = 0; i < trace.ranks.size(); ++i) {
    const TraceRank& rank = trace.ranks[i];
    summary.ranks.push_back(SharesOf(rank, window));
    tables.insert(tables.end(), rank.tables.begin(), rank.tables.end());
    const BoundarySummary boundary = Boundary(trace, i, window);
    if (boundary.transfers > 0) summary.boundaries.push_back(boundary);
  }
  summary.all = MeanOf(summary.ranks);
  std::vector<double> latencies;
  for (const TracePlan& plan : trace.plans) {
    // The first ones are submitted before any rank starts.
    if (plan.committed < window.begin || plan.submitted > window.end) continue;
    latencies.push_back(plan.latency);
  }
  summary.plans = static_cast<int64_t>(latencies.size());
  summary.latency_p50 = Quantile(latencies, 0.5);
  summary.latency_p99 = Quantile(latencies, 0.99);
  summary.tables_p50 = Quantile(tables, 0.5);
  summary.tables_p99 = Quantile(tables, 0.99);
  return summary;
}

ordered_json ToJson(const TraceSummary& summary) {
  ordered_json ranks = ordered_json::array();
  for (size_t i = 0; i < summary.ranks.size(); ++i) {
    ordered_json rank = {{"rank", i}};
    rank.update(SharesJson(summary.ranks[i]));
    ranks.push_back(std::move(rank));
  }
  ordered_json boundaries = ordered_json::array();
  for (const BoundarySummary& boundary : summary.boundaries)
    boundaries.push_back({{"from", boundary.from},
                          {"to", boundary.to},
                          {"transfers", boundary.transfers},
                          {"bytes", boundary.bytes},
                          {"time_ms", boundary.time / kMicrosecondsPerMs},
                          {"hidden_share", boundary.hidden_share},
                          {"sender_share", boundary.sender_share}});
  return {{"begin_ms", summary.window.begin / kMicrosecondsPerMs},
          {"end_ms", summary.window.end / kMicrosecondsPerMs},
          {"plans", summary.plans},
          {"ranks", std::move(ranks)},
          {"all", SharesJson(summary.all)},
          {"boundaries", std::move(boundaries)},
          {"plan_latency_ms",
           {{"p50", summary.latency_p50 / kMicrosecondsPerMs},
            {"p99", summary.latency_p99 / kMicrosecondsPerMs}}},
          {"tables_us", {{"p50", summary.tables_p50}, {"p99", summary.tables_p99}}}};
}

std::string ToText(const TraceSummary& summary) {
  BenchTable table({{"rank", ""},
                    {"busy", "% kernels"},
                    {"bubble", "% idle"},
                    {"transfer", "% calls"},
                    {"host", "% other"},
                    {"of the bubble", "% for input"}});
  for (size_t i = 0; i < summary.ranks.size(); ++i)
    table.AddRow(SharesCells(fmt::format("{}", i), summary.ranks[i]));
  table.AddRow(SharesCells("all", summary.all));
  std::string text = fmt::format("{} plans in {:.1f} ms\n\n{}\n",
                                 WithThousands(static_cast<double>(summary.plans)),
                                 summary.window.length() / kMicrosecondsPerMs, table.ToText());
  for (const BoundarySummary& boundary : summary.boundaries)
    text += fmt::format(
        "rank {} to rank {}: {} transfers, {:.2f} MB, {:.1f} ms on the way, of that {:.1f}% hidden "
        "behind the receiver's work and {:.1f}% beside the sender's next kernels\n",
        boundary.from, boundary.to, WithThousands(static_cast<double>(boundary.transfers)),
        static_cast<double>(boundary.bytes) * 1e-6, boundary.time / kMicrosecondsPerMs,
        100 * boundary.hidden_share, 100 * boundary.sender_share);
  text += fmt::format(
      "plan latency, from submission to commit: p50 {:.2f} ms, p99 {:.2f} ms\n"
      "tables of a plan, built beside the computing: p50 {:.0f} us, p99 {:.0f} us\n",
      summary.latency_p50 / kMicrosecondsPerMs, summary.latency_p99 / kMicrosecondsPerMs,
      summary.tables_p50, summary.tables_p99);
  return text;
}

}  // namespace longspan::apps
