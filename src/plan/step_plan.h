// One entry of the leader's log: everything a rank needs to know to take the next step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/page_pool.h"
#include "plan/ids.h"
#include "spec/sampling.h"

namespace longspan::plan {

// Where a row's token comes from: a literal, or the token that an earlier plan samples for its
// `slot`-th listed row. So decoding never waits for the leader.
struct TokenSource {
  int32_t literal = -1;  // below 0: sampled
  uint32_t slot = 0;
  PlanNumber plan;

  static TokenSource Literal(int32_t token) { return {.literal = token}; }
  static TokenSource Sampled(PlanNumber plan, uint32_t slot) {
    return {.slot = slot, .plan = plan};
  }
  bool is_literal() const { return literal >= 0; }
  friend bool operator==(const TokenSource&, const TokenSource&) = default;
};

// A sequence that ranks have not seen before (or that comes back after a preemption).
struct SequenceStart {
  SequenceId sequence;
  spec::SamplingSpec sampling;
  // The tokens that penalties look at; empty where the sampling has none.
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  friend bool operator==(const SequenceStart&, const SequenceStart&) = default;
};

// Consecutive positions [begin, end) of one sequence: a chunk of its prompt, or one decoding row.
struct Slice {
  SequenceId sequence;
  int64_t begin = 0;
  std::vector<TokenSource> tokens;  // end - begin of them
  std::vector<kv::PageId>
      new_pages;  // appended to the sequence's page table before the slice is computed
  int64_t end() const { return begin + static_cast<int64_t>(tokens.size()); }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// A row that needs logits, and for what. All others stop before the head.
struct LogitsRow {
  uint32_t slice = 0;        // index into the plan's slices
  int64_t position = 0;      // of the row; a sampled token gets position + 1
  bool sample = false;       // draw the next token
  int32_t score_token = -1;  // report the log-probability of this token as the next one
  bool return_logits = false;
  bool return_hidden = false;  // report the residual stream of this row after every layer
  friend bool operator==(const LogitsRow&, const LogitsRow&) = default;
};

// A numbered, self-contained, printable value. Ranks apply plans in order and decide nothing
// themselves. Order within a plan: released sequences are forgotten, started ones known, pages
// appended, slices computed, rows sampled or scored.
struct StepPlan {
  PlanNumber number;
  Epoch epoch;
  // In a pipeline with looped stages: the last plan of its group (plan/pipeline_schedule.h).
  bool ends_group = true;
  std::vector<SequenceId> released;
  std::vector<SequenceStart> started;
  std::vector<Slice> slices;
  std::vector<LogitsRow>
      logits_rows;  // ordered by slice, then position; a token's slot is its index here

  int64_t rows() const;
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

// One line per part; equal plans have equal text. For logs, and to compare the runtime with the
// simulator.
std::string ToText(const StepPlan& plan);

}  // namespace longspan::plan
