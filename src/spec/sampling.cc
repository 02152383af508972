#include "spec/sampling.h"

#include <cmath>

namespace longspan::spec {

base::Status CheckSampling(const SamplingSpec& sampling) {
  // Written so that NaN fails every comparison.
  if (!(sampling.temperature >= 0 && sampling.temperature <= 100))
    return base::InvalidArgument("temperature must be between 0 and 100");
  if (sampling.top_k < 0) return base::InvalidArgument("top-k must be 0 (all) or more");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return base::InvalidArgument("top-p must be above 0 and at most 1");
  if (!(sampling.min_p >= 0 && sampling.min_p < 1))
    return base::InvalidArgument("min-p must be at least 0 and below 1");
  if (!(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= 100))
    return base::InvalidArgument("repetition penalty must be above 0 and at most 100");
  if (!(std::abs(sampling.frequency_penalty) <= 100))
    return base::InvalidArgument("frequency penalty must be between -100 and 100");
  if (!(std::abs(sampling.presence_penalty) <= 100))
    return base::InvalidArgument("presence penalty must be between -100 and 100");
  if (sampling.top_logprobs < 0 || sampling.top_logprobs > 1000)
    return base::InvalidArgument("the number of alternative log-probabilities must be 0 to 1000");
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0) return base::InvalidArgument("logit bias is for token ids, not for {}", token);
    if (!(std::abs(bias) <= 1000))
      return base::InvalidArgument("logit bias must be between -1000 and 1000");
  }
  return base::OkStatus();
}

}  // namespace longspan::spec
