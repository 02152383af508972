// A sequence as the leader sees it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "engine/output.h"
#include "engine/request.h"
#include "kv/page_pool.h"
#include "kv/prefix_tree.h"
#include "plan/step_plan.h"

namespace longspan::engine {

// Into which chunks its prompt is to be cut (ChunkCutter), by the state when that was planned.
struct PlannedChunks {
  int64_t begin = 0;
  std::vector<int64_t> ends;  // empty: not planned
  double longest_s = 0;       // of a chunk
  double drain_share = 1;
  double ahead_s = 0;
  double max_seconds = 0;  // that a chunk could take
  uint64_t costs_number = 0;
};

// Position p holds prompt[p], or output[p - prompt length]. Its row writes the KV of p and, where
// listed, gives the logits of p + 1.
struct Sequence {
  plan::SequenceId id;
  Request request;
  OutputSink* sink = nullptr;
  base::Clock::Duration submitted{};
  base::Clock::Duration admitted{};  // first; zero while it waits
  double first_token_s = 0;

  int64_t output_limit = 0;
  int64_t resumed_outputs = 0;    // tokens that were committed when it was preempted last
  int64_t prefill_begin = 0;      // the first of them that was not cached
  bool is_short = false;          // see AdmissionQueue
  int group = -1;                 // of decodes, see DecodeGroups; below 0: it does not decode
  std::vector<kv::PageId> pages;  // what is prefilled is reserved at admission, the rest grows
  kv::PrefixTree::Cursor prefix;  // how far they are cached, for others too
  int64_t cached_tokens = 0;      // positions that were cached at its first admission
  // When PageLedger::Reserve may succeed after it has failed.
  int64_t reserve_at_usable = 0;
  int64_t reserve_failed_at_published = 0;
  size_t pages_announced = 0;  // how many of its pages plans have told the ranks
  int64_t scheduled = 0;       // rows of positions below this are computed or in flight
  int64_t computed = 0;        // rows of positions below this are computed on every stage
  bool started = false;        // a plan has told the ranks of it
  PlannedChunks planned;       // of what is prefilled

  int64_t reported = 0;  // prompt tokens that the sink has heard of
  size_t scored = 0;     // of request.score_positions, those that the sink has heard of

  std::vector<int32_t> output;  // committed tokens
  // Tokens that plans in flight will sample, in order, beginning with output[output.size()].
  std::deque<plan::TokenSource> pending;

  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()); }
  // Positions whose tokens are known when it starts.
  int64_t prefill_length() const { return prompt_length() + resumed_outputs; }
  bool in_prefill() const { return scheduled < prefill_length(); }
  // It was preempted, and computes again what its rows before have reported already.
  bool resumed() const { return resumed_outputs > 0; }
  int32_t token(int64_t position) const {
    return position < prompt_length() ? request.prompt[static_cast<size_t>(position)]
                                      : output[static_cast<size_t>(position - prompt_length())];
  }
  // Outputs end before this position; the last one is never computed.
  int64_t positions() const { return prompt_length() + std::max<int64_t>(0, output_limit - 1); }
};

}  // namespace longspan::engine
