// Pinned host memory through which small uploads pass without a wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>

#include "base/result.h"
#include "tensor/buffer.h"

namespace longspan::backend::cuda {

// Two halves in turn: what goes into one is copied on the stream, and the half is used again once
// an event says that its copies have been made. A step's tables fill a small part of a half, so
// nobody waits. One thread.
class StagingRing {
 public:
  static constexpr int64_t kHalfBytes = int64_t{8} << 20;

  StagingRing() = default;
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  base::Status Open();

  // Copies host bytes of any number to the device in the order of the stream; `host` may be reused
  // at once.
  cudaError_t Upload(std::span<const std::byte> host, void* device, cudaStream_t stream);

 private:
  cudaError_t Advance(cudaStream_t stream);

  tensor::Buffer memory_;
  std::array<cudaEvent_t, 2> copied_{};  // of each half
  int half_ = 0;
  int64_t used_ = 0;  // of the half
};

}  // namespace longspan::backend::cuda
