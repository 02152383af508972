// Memory that another process of the same host can copy into: that of GPUs.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/result.h"
#include "comm/transfer.h"

namespace longspan::comm {

// Where a buffer is, in words that the PeerMemory of another process understands.
using PeerPlace = std::array<std::byte, 112>;

// The device memory of this process, as its neighbours see it. Thread-safe; none of the members
// waits for a copy.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // Makes a place of a buffer of this process. The memory stays its owner's, and must not be freed
  // while anybody may copy into it.
  virtual base::Result<PeerPlace> Export(std::span<std::byte> buffer) = 0;

  // Copies `data` of this process to the beginning of a place that a peer has exported. The
  // transfer is done when the bytes are there, for the peer's device too.
  virtual Transfer Copy(std::span<const std::byte> data, const PeerPlace& place) = 0;
};

}  // namespace longspan::comm
