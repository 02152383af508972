#include "backend/cuda/cuda_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_error.h"

namespace longspan::backend::cuda {
namespace {

double Gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

base::Result<tensor::Buffer> AllocateDevice(int64_t bytes) {
  if (bytes == 0) return tensor::Buffer();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky: the next call may succeed
    return base::ResourceExhausted(
        "the GPU has {:.2f} GiB of memory left of {:.2f} GiB needed: use more GPUs, or lower "
        "--max-total-tokens or --chunked-prefill-size",
        Gib(AvailableDeviceBytes()), Gib(bytes));
  }
  LONGSPAN_RETURN_IF_CUDA(error, "allocate GPU memory");
  tensor::Buffer buffer(data, bytes, [](void* memory, int64_t) { (void)cudaFree(memory); });
  LONGSPAN_RETURN_IF_CUDA(cudaMemset(data, 0, static_cast<size_t>(bytes)), "clear GPU memory");
  LONGSPAN_RETURN_IF_CUDA(cudaStreamSynchronize(nullptr), "clear GPU memory");
  return buffer;
}

int64_t AvailableDeviceBytes() {
  size_t available = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
  return static_cast<int64_t>(available);
}

base::Status CopyToDevice(std::span<const std::byte> host, void* device) {
  LONGSPAN_RETURN_IF_CUDA(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice),
                          "copy to the GPU");
  return ToStatus(cudaStreamSynchronize(nullptr), "copy to the GPU");
}

}  // namespace longspan::backend::cuda
