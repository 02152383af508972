// How the next token is chosen.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"

namespace longspan::spec {

// Order of application: logit bias, penalties, temperature, top-k, top-p, min-p, draw. Random
// numbers are a counter, f(seed, position), so that replaying a position repeats its choice.
struct SamplingSpec {
  double temperature = 0;  // 0: greedy
  int top_k = 0;           // keep the k largest; 0: all
  double top_p = 1;        // keep the smallest set whose probability reaches this
  double min_p = 0;        // drop what is below this share of the best probability
  uint64_t seed = 0;
  double repetition_penalty =
      1;  // on every token of the prompt and the output: logit / p or logit * p
  double frequency_penalty = 0;  // minus this for every occurrence in the output
  double presence_penalty = 0;   // minus this once if in the output
  int top_logprobs = 0;          // how many alternatives to report
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits of these tokens

  bool has_penalties() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0;
  }
  friend bool operator==(const SamplingSpec&, const SamplingSpec&) = default;
};

// Refuses values outside their ranges, naming the range.
base::Status CheckSampling(const SamplingSpec& sampling);

}  // namespace longspan::spec
