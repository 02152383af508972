// The sentences that say why a connection is over; the same on every transport.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace longspan::comm {

inline base::Status ClosedHere() {
  return base::Unavailable("this end of the connection was closed");
}
inline base::Status ClosedByPeer() { return base::Unavailable("the peer closed the connection"); }
inline base::Status ClosedInsideMessage() {
  return base::Unavailable("the peer closed the connection in the middle of a message");
}
inline base::Status SizesDiffer(uint64_t number, size_t sent, size_t buffer) {
  return base::DataLoss(
      "message {} has {} bytes, but the buffer that was posted for it has {}: both ranks must "
      "follow the same step plan",
      number, sent, buffer);
}

}  // namespace longspan::comm
