// Anonymous memory that one process fills and another one reads. Internal to comm/shared_memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"
#include "base/status.h"
#include "comm/file_descriptor.h"
#include "comm/wire.h"

namespace longspan::comm {

// A mapping of shared memory. Move-only; unmapped when destroyed.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  // Maps memory of CreateMemory for writing.
  static base::Result<SharedMemory> MapOwn(const FileDescriptor& memory, size_t size);
  // Maps memory that a peer passed, read-only. DataLoss when it is not what CreateMemory makes: a
  // read of it could fault, now or once the peer shrinks it.
  static base::Result<SharedMemory> MapOfPeer(const FileDescriptor& memory, size_t size);

  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

// As AdoptSocket; InvalidArgument where memory cannot be passed through it.
base::Status AdoptUnixSocket(const FileDescriptor& socket);

// Memory of a fixed size without a name, all of it allocated. ResourceExhausted when there is none.
base::Result<FileDescriptor> CreateMemory(size_t size);

// Passes memory to the peer of an AF_UNIX connection as a kMemory, without waiting.
base::Status PassMemory(int socket, const FileDescriptor& memory, size_t size, uint64_t number = 0);

// Reads the next header and the memory that is passed with it; without one the descriptor is empty.
// Sleeps until it comes.
base::Status ReadHeaderAndMemory(int socket, FrameHeader& header, FileDescriptor& memory);

// Takes it there as the first frame. DataLoss when something else comes.
base::Result<FileDescriptor> TakeMemory(int socket, size_t size);

}  // namespace longspan::comm
