// What a FaultPlan has in store for a message.
#pragma once

#include <cstdint>

#include "comm/fault/fault.h"

namespace longspan::comm {

enum class Fate { kSend, kKill, kDrop, kDuplicate, kTruncate };

// A message that is in several sets: the first of kill, drop, duplicate, truncate.
inline Fate FateOf(const FaultPlan& plan, uint64_t message) {
  if (plan.kill_at.has_value() && message >= *plan.kill_at) return Fate::kKill;
  if (plan.drop.contains(message)) return Fate::kDrop;
  if (plan.duplicate.contains(message)) return Fate::kDuplicate;
  if (plan.truncate.contains(message)) return Fate::kTruncate;
  return Fate::kSend;
}

}  // namespace longspan::comm
