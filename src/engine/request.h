// What the engine is asked for, in native terms: token ids, no text and no JSON.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "spec/sampling.h"

namespace longspan::engine {

struct Request {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 128;  // 0: only the prompt is computed
  spec::SamplingSpec sampling;
  std::vector<int32_t> stop_tokens;  // besides the model's own end tokens
  bool ignore_end_tokens = false;    // go on after the model's own end tokens

  // Rows of the prompt whose logits are wanted: ascending positions. Each reports the
  // log-probability of the prompt's next token (the last position has none) and, if asked for, its
  // logits.
  std::vector<int64_t> score_positions;
  bool return_logits = false;
  // The residual stream of the last position after every layer.
  bool return_hidden = false;

  // For benches only: positions [0, synthetic_prefix) are taken as cached without being computed;
  // their keys and values are whatever the pages hold (RankConfig::synthetic_kv puts numbers
  // there).
  int64_t synthetic_prefix = 0;
};

// What the engine can take.
struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t context_length = 0;   // tokens of prompt and output together
  int64_t capacity_tokens = 0;  // of the KV cache
  int page_size = 64;
};

// Refuses an empty prompt, ids out of range, a prompt longer than the context or than the cache can
// ever hold, positions out of range or order, a synthetic prefix that leaves nothing to compute,
// and bad sampling parameters.
base::Status CheckRequest(const Request& request, const RequestLimits& limits);

// How many tokens can be generated: max_tokens, or what the context leaves.
int64_t OutputLimit(const Request& request, const RequestLimits& limits);

// Positions that get a KV entry: the prompt and all output tokens but the last.
int64_t CachedPositions(const Request& request, const RequestLimits& limits);

}  // namespace longspan::engine
