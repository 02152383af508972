// The wire form of channels and links over a stream: a header of 24 bytes, then `size` bytes of
// payload where the kind has one. Little-endian, as the fields lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

namespace longspan::comm {

enum class FrameKind : uint16_t {
  kFrame = 1,    // channel: a frame follows; numbers count from 0
  kReady = 2,    // link: a buffer of `size` bytes is posted for message `number`; no payload
  kMessage = 3,  // link: message `number` follows; only after its kReady, and of that size
  kRefused =
      4,  // link: message `number` has `size` bytes and is not sent, since the buffer differs
  kGreeting = 5,  // the first frame each way of a TCP connection; `size` bytes follow
  // Only where the payloads of large messages go through shared memory (comm/shared_memory):
  kMemory = 6,  // the first frame each way: `size` bytes of memory are passed with it; no payload
  kPiece = 7,   // in place of kMessage: the next `size` bytes of it lie in the memory
  kFreed = 8,   // the next `size` bytes of the receiver's memory are read and free again
  // Only in journals through shared memory, where kMemory passes the segment that entries from
  // `number` on lie in, one after another:
  kEntry = 9,  // entry `number` is written: the next `size` bytes of the segment
};

struct FrameHeader {
  static constexpr uint32_t kMagic = 0x5043534c;  // "LSCP"
  static constexpr uint16_t kVersion = 2;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  FrameKind kind = FrameKind::kFrame;
  uint64_t number = 0;
  uint64_t size = 0;
};
static_assert(sizeof(FrameHeader) == 24);

// DataLoss when magic or version are not those of this build. Kind, number and size are the
// reader's to judge.
base::Status CheckHeader(const FrameHeader& header);

// The DataLoss for a header that breaks the rules above: "a broken message came from the peer:
// WHAT".
base::Status BrokenWire(std::string_view what);

// Reads a header from a stream socket and checks it, sleeping until it is there. Unavailable when
// the peer has closed or died.
base::Status ReadHeader(int fd, FrameHeader& header);

// Fills `bytes`, the payload of a header, in the same way.
base::Status ReadPayload(int fd, std::span<std::byte> bytes);

}  // namespace longspan::comm
