#include "backend/cuda/copy_rate.h"

#include <algorithm>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_queue.h"

namespace longspan::backend::cuda {
namespace {

constexpr int64_t kBytes = int64_t{2} << 30;
constexpr int kCopies = 10;

struct Events {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ~Events() {
    if (begin != nullptr) (void)cudaEventDestroy(begin);
    if (end != nullptr) (void)cudaEventDestroy(end);
  }
};

}  // namespace

base::Result<double> MeasureCopyRate(tensor::Queue& queue) {
  cudaStream_t stream = static_cast<CudaQueue&>(queue).stream();
  LONGSPAN_ASSIGN_OR_RETURN(const auto from, AllocateDevice(kBytes));
  LONGSPAN_ASSIGN_OR_RETURN(const auto to, AllocateDevice(kBytes));
  Events events;
  LONGSPAN_RETURN_IF_CUDA(cudaEventCreate(&events.begin), "make an event");
  LONGSPAN_RETURN_IF_CUDA(cudaEventCreate(&events.end), "make an event");
  for (int i = 0; i <= kCopies; ++i) {
    // The first one is not timed.
    if (i == 1) LONGSPAN_RETURN_IF_CUDA(cudaEventRecord(events.begin, stream), "copy");
    LONGSPAN_RETURN_IF_CUDA(
        cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream), "copy");
  }
  LONGSPAN_RETURN_IF_CUDA(cudaEventRecord(events.end, stream), "copy");
  LONGSPAN_RETURN_IF_CUDA(cudaEventSynchronize(events.end), "copy");
  float milliseconds = 0;
  LONGSPAN_RETURN_IF_CUDA(cudaEventElapsedTime(&milliseconds, events.begin, events.end), "copy");
  return 2.0 * kBytes * kCopies / (double{milliseconds} * 1e-3);
}

}  // namespace longspan::backend::cuda
