#include "apps/trace_events.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>

#include <fmt/compile.h>
#include <fmt/format.h>

namespace longspan::apps {
namespace {

constexpr size_t kSlicesTold = 3;

// What follows runs some ten times per plan, beside a decoding that takes a fraction of a
// millisecond: hence no format strings.
void AppendNumber(int64_t number, std::string& out) {
  const fmt::format_int digits(number);
  out.append(digits.data(), digits.size());
}

// To the last digit.
void AppendMicroseconds(int64_t nanoseconds, std::string& out) {
  if (nanoseconds < 0) out += '-';
  const int64_t size = std::abs(nanoseconds);
  AppendNumber(size / 1000, out);
  out += '.';
  const auto rest = static_cast<int>(size % 1000);
  for (const int digit : {rest / 100, rest / 10 % 10, rest % 10})
    out += static_cast<char>('0' + digit);
}

void AppendName(std::string_view kind, int process, int thread, std::string_view name,
                std::string& out) {
  fmt::format_to(std::back_inserter(out),
                 ",\n{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}"
                 "\"}}}}",
                 kind, process, thread, name);
}

}  // namespace

std::string_view SpanCategory(plan::SpanKind kind) {
  static constexpr std::array<std::string_view, plan::kSpanKinds> kNames = {
      "kernels", "wait", "transfer", "host", "idle"};
  return kNames[static_cast<size_t>(kind)];
}

std::string DescribeWork(const std::vector<engine::ComputedSlice>& slices) {
  std::string text;
  for (size_t i = 0; i < std::min(slices.size(), kSlicesTold); ++i)
    fmt::format_to(std::back_inserter(text), "{}seq {} [{}, {})", i == 0 ? "" : ", ",
                   slices[i].sequence.value, slices[i].begin, slices[i].end);
  if (slices.size() > kSlicesTold)
    fmt::format_to(std::back_inserter(text), " and {} more", slices.size() - kSlicesTold);
  return text;
}

int64_t ClockOffset(int64_t there, int64_t back) {
  if (there >= 0 && back >= 0) return 0;
  return (there - back) / 2;
}

// A complete event ("X") of a thread.
struct TraceEvents::Event {
  std::string_view category;
  std::string_view name;
  int process = 0;
  int thread = 0;
  int64_t start = 0;  // nanoseconds on the leader's clock
  int64_t end = 0;
  std::string arguments;  // more of them, each with a comma before it
};

TraceEvents::TraceEvents(int ranks, int lanes)
    : ranks_(static_cast<size_t>(ranks)), lanes_(static_cast<size_t>(lanes)) {}

std::string TraceEvents::Begin() const {
  std::string out = fmt::format(
      "[\n{{\"name\":\"longspan\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{{\"version\":{},"
      "\"ranks\":{}}}}}",
      kTraceVersion, ranks_.size());
  AppendName("process_name", kLeaderProcess, 0, "leader", out);
  AppendName("thread_name", kLeaderProcess, 0, "decisions", out);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const int process = kFirstRankProcess + static_cast<int>(rank);
    AppendName("process_name", process, 0, fmt::format("rank {}", rank), out);
    AppendName("thread_name", process, kComputeThread, "compute", out);
    AppendName("thread_name", process, kIntakeThread, "plan intake", out);
    AppendName("thread_name", process, kReceiveThread, "receives", out);
    AppendName("thread_name", process, kSendThread, "sends", out);
  }
  return out;
}

void TraceEvents::Append(const engine::StepRecord& step, std::string& out) {
  if (!started_) Start(step);
  work_ = DescribeWork(step.slices);
  arguments_ = fmt::format(",\"args\":{{\"plan\":{},\"work\":\"{}\"", step.plan.value, work_);
  AppendLeader(step, out);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    AppendRank(step, rank, out);
    AppendTransfers(step, rank, out);
  }
}

void TraceEvents::Start(const engine::StepRecord& step) {
  started_ = true;
  origin_ = step.leader.begin;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const plan::StageTiming& stage = step.stages[rank];
    ranks_[rank].clock_offset =
        ClockOffset(stage.intake.taken - step.leader.made, step.leader.reports[rank] - stage.end);
  }
}

void TraceEvents::AppendLeader(const engine::StepRecord& step, std::string& out) const {
  const engine::LeaderTiming& leader = step.leader;
  std::string slices;
  for (const engine::ComputedSlice& slice : step.slices)
    fmt::format_to(std::back_inserter(slices),
                   FMT_COMPILE("{}{{\"seq\":{},\"begin\":{},\"end\":{},\"prefill\":{}}}"),
                   slices.empty() ? "" : ",", slice.sequence.value, slice.begin, slice.end,
                   slice.prefill);
  AppendEvent({.category = "plan",
               .name = "plan",
               .start = leader.begin,
               .end = leader.made,
               .arguments = fmt::format(",\"slices\":[{}]", slices)},
              out);
  AppendEvent(
      {.category = "submit", .name = "submit", .start = leader.made, .end = leader.submitted}, out);
  std::string latency = ",\"latency_us\":";
  AppendMicroseconds(leader.committed - leader.submitted, latency);
  AppendEvent({.category = "commit",
               .name = "commit",
               .start = leader.commit_begin,
               .end = leader.committed,
               .arguments = std::move(latency)},
              out);
}

void TraceEvents::AppendRank(const engine::StepRecord& step, size_t rank, std::string& out) const {
  const plan::StageTiming& stage = step.stages[rank];
  const int64_t offset = ranks_[rank].clock_offset;
  const auto append = [&](std::string_view category, int thread, int64_t start, int64_t end) {
    AppendEvent({.category = category,
                 .name = category == "kernels" ? std::string_view(work_) : category,
                 .process = kFirstRankProcess + static_cast<int>(rank),
                 .thread = thread,
                 .start = start - offset,
                 .end = end - offset},
                out);
  };
  for (const plan::StageSpan& span : stage.spans)
    append(SpanCategory(span.kind), kComputeThread, span.start, span.end);
  append("tables", kIntakeThread, stage.intake.taken, stage.intake.tables);
  append("buffer", kIntakeThread, stage.intake.tables, stage.intake.posted);
}

// The k-th receive of a plan meets the k-th send of the same lane of the stage before.
void TraceEvents::AppendTransfers(const engine::StepRecord& step, size_t receiver,
                                  std::string& out) const {
  const size_t sender = (receiver + ranks_.size() - lanes_) % ranks_.size();
  const auto& receives = step.stages[receiver].receives;
  const auto& sends = step.stages[sender].sends;
  for (size_t i = 0; i < std::min(receives.size(), sends.size()); ++i) {
    const int64_t offset = ranks_[receiver].clock_offset;
    const int64_t end = receives[i].done - offset;
    const int64_t start =
        std::max(receives[i].posted - offset, sends[i].posted - ranks_[sender].clock_offset);
    Event event = {
        .category = "receive",
        .name = "receive",
        .process = kFirstRankProcess + static_cast<int>(receiver),
        .thread = kReceiveThread,
        .start = std::min(start, end),
        .end = end,
        .arguments = fmt::format(",\"bytes\":{},\"from\":{}", receives[i].bytes, sender)};
    AppendEvent(event, out);
    event.category = event.name = "send";
    event.process = kFirstRankProcess + static_cast<int>(sender);
    event.thread = kSendThread;
    event.arguments = fmt::format(",\"bytes\":{},\"to\":{}", sends[i].bytes, receiver);
    AppendEvent(event, out);
  }
}

void TraceEvents::AppendEvent(const Event& event, std::string& out) const {
  out.append(",\n{\"name\":\"").append(event.name);
  out.append("\",\"cat\":\"").append(event.category);
  out.append("\",\"ph\":\"X\",\"pid\":");
  AppendNumber(event.process, out);
  out.append(",\"tid\":");
  AppendNumber(event.thread, out);
  out.append(",\"ts\":");
  AppendMicroseconds(event.start - origin_, out);
  out.append(",\"dur\":");
  AppendMicroseconds(event.end - event.start, out);
  out.append(arguments_).append(event.arguments).append("}}");
}

}  // namespace longspan::apps
