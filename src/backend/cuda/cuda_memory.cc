#include "backend/cuda/cuda_memory.h"

#include <algorithm>
#include <cuda_runtime_api.h>
#include <map>
#include <memory>
#include <mutex>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/staging_ring.h"

namespace longspan::backend::cuda {
namespace {

constexpr int64_t kWeightBlockBytes = int64_t{256} << 20;
// What products and bulk copies want.
constexpr int64_t kWeightAlignment = 256;

double Gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

base::Result<tensor::Buffer> AllocateRaw(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // no error of the device: a smaller one may succeed
    return base::ResourceExhausted(
        "the GPU has {:.2f} GiB of memory left of {:.2f} GiB needed: use more GPUs (--pp-size, "
        "--tp-size), or "
        "lower --max-total-tokens or --chunked-prefill-size",
        Gib(AvailableDeviceBytes()), Gib(bytes));
  }
  LONGSPAN_RETURN_IF_CUDA(error, "allocate GPU memory");
  return tensor::Buffer(data, bytes, [](void* memory, int64_t) { (void)cudaFree(memory); });
}

// The block of a device that weights are cut from.
class WeightBlocks {
 public:
  base::Result<tensor::Buffer> Allocate(int64_t bytes) {
    const int64_t padded = (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
    if (padded > kWeightBlockBytes / 4) return AllocateRaw(bytes);
    int device = 0;
    LONGSPAN_RETURN_IF_CUDA(cudaGetDevice(&device), "use the GPU");
    const std::lock_guard lock(mutex_);
    Open& open = open_[device];
    std::shared_ptr<tensor::Buffer> block = open.block.lock();
    if (block == nullptr || open.used + padded > kWeightBlockBytes) {
      LONGSPAN_ASSIGN_OR_RETURN(auto memory, AllocateRaw(kWeightBlockBytes));
      block = std::make_shared<tensor::Buffer>(std::move(memory));
      open = {block, 0};
    }
    void* data = static_cast<std::byte*>(block->data()) + open.used;
    open.used += padded;
    return tensor::Buffer(data, bytes, [block](void*, int64_t) {});
  }

 private:
  struct Open {
    std::weak_ptr<tensor::Buffer> block;  // lives by the buffers in it
    int64_t used = 0;
  };
  std::mutex mutex_;
  std::map<int, Open> open_;
};

}  // namespace

base::Result<tensor::Buffer> AllocateDevice(int64_t bytes) {
  if (bytes == 0) return tensor::Buffer();
  LONGSPAN_ASSIGN_OR_RETURN(auto buffer, AllocateRaw(bytes));
  LONGSPAN_RETURN_IF_CUDA(cudaMemset(buffer.data(), 0, static_cast<size_t>(bytes)),
                          "clear GPU memory");
  LONGSPAN_RETURN_IF_CUDA(cudaStreamSynchronize(nullptr), "clear GPU memory");
  return buffer;
}

base::Result<tensor::Buffer> AllocateWeights(int64_t bytes) {
  static WeightBlocks blocks;
  if (bytes == 0) return tensor::Buffer();
  return blocks.Allocate(bytes);
}

base::Result<tensor::Buffer> AllocatePinned(int64_t bytes) {
  if (bytes == 0) return tensor::Buffer();
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return base::ResourceExhausted(
        "the host cannot pin {:.2f} GiB of memory for copies to the GPU: free some", Gib(bytes));
  }
  LONGSPAN_RETURN_IF_CUDA(error, "pin host memory");
  return tensor::Buffer(data, bytes, [](void* memory, int64_t) { (void)cudaFreeHost(memory); });
}

int64_t AvailableDeviceBytes() {
  size_t available = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
  return static_cast<int64_t>(available);
}

base::Status CopyToDevice(std::span<const std::byte> host, void* device) {
  thread_local std::unique_ptr<StagingRing> ring;
  if (ring == nullptr) {
    auto opened = std::make_unique<StagingRing>();
    LONGSPAN_RETURN_IF_ERROR(opened->Open());
    ring = std::move(opened);
  }
  LONGSPAN_RETURN_IF_CUDA(ring->Upload(host, device, cudaStreamPerThread), "copy to the GPU");
  return ToStatus(cudaStreamSynchronize(cudaStreamPerThread), "copy to the GPU");
}

}  // namespace longspan::backend::cuda
