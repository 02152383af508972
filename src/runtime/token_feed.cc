#include "runtime/token_feed.h"

#include <algorithm>
#include <chrono>

namespace longspan::runtime {
namespace {

// A leader refers to plans that are still in flight only, and there are never so many.
constexpr size_t kPlansKept = 1024;

}  // namespace

void TokenFeed::Publish(SampledTokens tokens) {
  recent_.push_back(std::move(tokens));
  if (recent_.size() > kPlansKept) recent_.pop_front();
}

base::Status TokenFeed::TakeArrived() {
  while (channel_ != nullptr) {
    const auto frame = channel_->ReceiveFor(std::chrono::nanoseconds(0));
    // A closed channel shows where a token of it is needed.
    if (!frame.ok()) return base::OkStatus();
    LONGSPAN_ASSIGN_OR_RETURN(auto tokens, DecodeTokens(*frame));
    Publish(std::move(tokens));
  }
  return base::OkStatus();
}

base::Result<int32_t> TokenFeed::Resolve(const plan::TokenSource& source) {
  if (source.is_literal()) return source.literal;
  while (channel_ != nullptr && (recent_.empty() || recent_.back().plan < source.plan)) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto frame, channel_->Receive());
    LONGSPAN_ASSIGN_OR_RETURN(auto tokens, DecodeTokens(frame));
    Publish(std::move(tokens));
  }
  const auto found =
      std::find_if(recent_.rbegin(), recent_.rend(),
                   [&](const SampledTokens& tokens) { return tokens.plan == source.plan; });
  if (found == recent_.rend() || source.slot >= found->tokens.size() ||
      found->tokens[source.slot] < 0)
    return base::DataLoss("a plan refers to a token that plan {} has not sampled",
                          source.plan.value);
  return found->tokens[source.slot];
}

}  // namespace longspan::runtime
