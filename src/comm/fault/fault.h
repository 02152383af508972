// Channels and links that misbehave by a plan, for tests and to stand for a slow network.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "comm/channel.h"
#include "comm/link.h"

namespace longspan::comm {

// What happens to the messages that one end sends; what it receives passes untouched. Messages are
// counted from 0 in the order of their sends. The same plan does the same to the same sends.
struct FaultPlan {
  // Every message sets out so much later, as over a line of this latency: any number of them are on
  // their way at once, in order. Those on their way when the end closes still go out. 0 delays
  // nothing and starts no thread.
  std::chrono::nanoseconds delay{0};
  // In place of this message and of all later ones the end closes, as if its process died.
  std::optional<uint64_t> kill_at;
  // These are told as sent and are not.
  std::set<uint64_t> drop;
  // These are sent twice. On a link the second one waits for another receive of that number, so the
  // number must not be used again.
  std::set<uint64_t> duplicate;
  // Only the first half of these is sent.
  std::set<uint64_t> truncate;
};

// An end that does what `plan` says and else is `channel`. When sends are delayed, their errors are
// told by a later send, and a full peer is tried again.
std::unique_ptr<Channel> CreateFaultInjectingChannel(std::unique_ptr<Channel> channel,
                                                     FaultPlan plan);

// Likewise for a link.
std::unique_ptr<Link> CreateFaultInjectingLink(std::unique_ptr<Link> link, FaultPlan plan);

}  // namespace longspan::comm
