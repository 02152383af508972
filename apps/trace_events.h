// What `--trace-out` writes: the steps of the engine as events of the Chrome trace form.
//
// The form: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, as an
// array of which a reader may miss the end. One event a line; Perfetto and chrome://tracing open
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output.h"

namespace longspan::apps {

// Process 0 of the file is the leader, process 1 + r is rank r. Threads of the leader: 0, its
// decisions ("plan", "submit", "commit"; that event has the plan's `latency_us` from submission to
// commit). Threads of a rank:
//   0  compute: "kernels" (named by what they compute), "wait", "transfer", "host", "idle"
//   1  plan intake: "tables" built, a "buffer" waited for
//   2  receives, 3 sends: residual streams on their way, with their bytes. One begins when both
//      sides have posted it, or the one before has ended, and ends when the receiver has all of it.
// These words are the events' categories. No two events of a thread overlap. Every event has the
// number of its `plan` and, as text, its `work`; "plan" also has the `slices`. Times are
// microseconds since the first plan was begun, on the leader's clock.
inline constexpr int kLeaderProcess = 0;
inline constexpr int kFirstRankProcess = 1;
inline constexpr int kComputeThread = 0;
inline constexpr int kIntakeThread = 1;
inline constexpr int kReceiveThread = 2;
inline constexpr int kSendThread = 3;

inline constexpr int kTraceVersion = 1;

// The categories of a rank's compute thread.
std::string_view SpanCategory(plan::SpanKind kind);

// "seq 3 [512, 1024)"; several slices are separated by commas, and from the fourth on counted.
std::string DescribeWork(const std::vector<engine::ComputedSlice>& slices);

// How far a rank's clock is ahead of the leader's, from one plan and its result. By the two clocks
// the plan was taken up `there` after it was made, and the result was taken up `back` after it was
// measured; so the offset is in [-back, there]. 0 where that is possible, since the ranks of a host
// read one clock; else the middle.
int64_t ClockOffset(int64_t there, int64_t back);

// Writes events as text. Keeps what the next step needs of the last one.
class TraceEvents {
 public:
  // `lanes` ranks make a stage.
  explicit TraceEvents(int ranks, int lanes = 1);

  // The beginning of a file: names of processes and threads.
  std::string Begin() const;
  // The events of a step; steps come in the order of their plans.
  void Append(const engine::StepRecord& step, std::string& out);
  // The end of a file.
  static constexpr std::string_view kEnd = "\n]\n";

 private:
  struct Rank {
    int64_t clock_offset = 0;
  };
  struct Event;

  void Start(const engine::StepRecord& step);
  void AppendLeader(const engine::StepRecord& step, std::string& out) const;
  void AppendRank(const engine::StepRecord& step, size_t rank, std::string& out) const;
  void AppendTransfers(const engine::StepRecord& step, size_t receiver, std::string& out) const;
  void AppendEvent(const Event& event, std::string& out) const;

  std::vector<Rank> ranks_;
  size_t lanes_;
  bool started_ = false;
  int64_t origin_ = 0;
  // Of the step at hand.
  std::string work_;
  std::string arguments_;  // what every event of it has
};

}  // namespace longspan::apps
