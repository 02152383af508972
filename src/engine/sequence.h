// A sequence as the leader sees it.
#pragma once

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

// Position p holds prompt[p], or output[p - prompt length]. Its row writes the KV of p and, where
// listed, gives the logits of p + 1.
struct Sequence {
  plan::SequenceId id;
  Request request;
  OutputSink* sink = nullptr;
  base::Clock::Duration submitted{};
  double first_token_s = 0;

  int64_t output_limit = 0;
  std::vector<kv::PageId> pages;  // for all positions, reserved at admission
  kv::PrefixTree::Cursor prefix;  // how far they are cached, for others too
  int64_t cached_tokens = 0;      // positions that were cached at admission
  int64_t reserve_again_at = 0;   // see PageLedger::Reserve
  size_t pages_announced = 0;     // how many of its pages plans have told the ranks
  int64_t scheduled = 0;          // rows of positions below this are computed or in flight
  int64_t computed = 0;           // rows of positions below this are computed on every stage
  bool started = false;           // a plan has told the ranks of it

  std::vector<int32_t> output;  // committed tokens
  // Tokens that plans in flight will sample, in order, beginning with output[output.size()].
  std::deque<plan::TokenSource> pending;

  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()); }
  bool in_prefill() const { return scheduled < prompt_length(); }
};

}  // namespace longspan::engine
