#include "backend/cuda/staging_ring.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_memory.h"

namespace longspan::backend::cuda {

base::Status StagingRing::Open() {
  LONGSPAN_ASSIGN_OR_RETURN(memory_, AllocatePinned(2 * kHalfBytes));
  for (cudaEvent_t& event : copied_)
    LONGSPAN_RETURN_IF_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                            "make an event on the GPU");
  return base::OkStatus();
}

StagingRing::~StagingRing() {
  for (cudaEvent_t event : copied_)
    if (event != nullptr) (void)cudaEventDestroy(event);
}

cudaError_t StagingRing::Upload(std::span<const std::byte> host, void* device,
                                cudaStream_t stream) {
  auto* to = static_cast<std::byte*>(device);
  while (!host.empty()) {
    if (used_ == kHalfBytes) {
      if (const cudaError_t error = Advance(stream); error != cudaSuccess) return error;
    }
    const size_t bytes = std::min(host.size(), static_cast<size_t>(kHalfBytes - used_));
    std::byte* const staged = static_cast<std::byte*>(memory_.data()) + half_ * kHalfBytes + used_;
    std::memcpy(staged, host.data(), bytes);
    const cudaError_t error = cudaMemcpyAsync(to, staged, bytes, cudaMemcpyHostToDevice, stream);
    if (error != cudaSuccess) return error;
    host = host.subspan(bytes);
    to += bytes;
    used_ = std::min(kHalfBytes, (used_ + static_cast<int64_t>(bytes) + 63) / 64 * 64);
  }
  return cudaSuccess;
}

cudaError_t StagingRing::Advance(cudaStream_t stream) {
  if (const cudaError_t error = cudaEventRecord(copied_[half_], stream); error != cudaSuccess)
    return error;
  half_ = 1 - half_;
  used_ = 0;
  // An event that was never recorded counts as passed.
  return cudaEventSynchronize(copied_[half_]);
}

}  // namespace longspan::backend::cuda
