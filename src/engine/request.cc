#include "engine/request.h"

#include <algorithm>

#include "kv/page_pool.h"

namespace longspan::engine {
namespace {

base::Status CheckScorePositions(const Request& request) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  int64_t previous = request.synthetic_prefix - 1;
  for (const int64_t position : request.score_positions) {
    if (position < request.synthetic_prefix || position >= length)
      return base::InvalidArgument("position {} is outside the computed prompt positions {} to {}",
                                   position, request.synthetic_prefix, length - 1);
    if (position <= previous)
      return base::InvalidArgument("positions must be in ascending order, {} comes after {}",
                                   position, previous);
    previous = position;
  }
  return base::OkStatus();
}

}  // namespace

base::Status CheckRequest(const Request& request, const RequestLimits& limits) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) return base::InvalidArgument("the prompt is empty: give at least one token");
  if (request.max_tokens < 0) return base::InvalidArgument("max-tokens must not be negative");
  if (request.synthetic_prefix < 0 || request.synthetic_prefix >= length)
    return base::InvalidArgument("a synthetic prefix of {} tokens leaves none of {} to compute",
                                 request.synthetic_prefix, length);
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= limits.vocab_size)
      return base::InvalidArgument("token id {} is outside the vocabulary of {}", token,
                                   limits.vocab_size);
  }
  const int64_t longest =
      request.max_tokens > 0 ? limits.context_length - 1 : limits.context_length;
  if (length > longest)
    return base::InvalidArgument(
        "the prompt has {} tokens and the context {}: shorten it, or raise --context-length where "
        "the model "
        "allows it",
        length, limits.context_length);
  const int64_t positions = CachedPositions(request, limits);
  if (kv::PagesFor(positions, limits.page_size) * limits.page_size > limits.capacity_tokens)
    return base::ResourceExhausted(
        "{} tokens of prompt and output need more than the KV cache holds: at most {} tokens fit; "
        "shorten the "
        "prompt, lower --max-tokens or raise --max-total-tokens",
        positions, limits.capacity_tokens);
  LONGSPAN_RETURN_IF_ERROR(CheckScorePositions(request));
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (token >= limits.vocab_size)
      return base::InvalidArgument("logit bias for token id {} is outside the vocabulary of {}",
                                   token, limits.vocab_size);
  }
  return spec::CheckSampling(request.sampling);
}

int64_t OutputLimit(const Request& request, const RequestLimits& limits) {
  return std::min(request.max_tokens,
                  limits.context_length - static_cast<int64_t>(request.prompt.size()));
}

int64_t CachedPositions(const Request& request, const RequestLimits& limits) {
  return static_cast<int64_t>(request.prompt.size()) +
         std::max<int64_t>(0, OutputLimit(request, limits) - 1);
}

}  // namespace longspan::engine
