// How a stage learns the tokens that rows of earlier plans have sampled.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/result.h"
#include "comm/channel.h"
#include "plan/step_plan.h"
#include "runtime/wire.h"

namespace longspan::runtime {

// Keeps the sampled tokens of the latest plans. On a single stage they are published locally; on
// the first of several they come from the last stage over a channel. One thread.
class TokenFeed {
 public:
  // `channel` may be null (single stage); it must outlive the feed.
  explicit TokenFeed(comm::Channel* channel) : channel_(channel) {}

  void Publish(SampledTokens tokens);

  // Takes what has come over the channel so far. To be called with every plan: most tokens are
  // never asked for here, and would fill the channel.
  base::Status TakeArrived();

  // The token, waiting for it where it has not come yet. DataLoss for one that no plan has sampled.
  base::Result<int32_t> Resolve(const plan::TokenSource& source);

 private:
  comm::Channel* channel_;
  std::deque<SampledTokens> recent_;  // in order of their plans
};

}  // namespace longspan::runtime
