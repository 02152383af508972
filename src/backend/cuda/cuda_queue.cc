#include "backend/cuda/cuda_queue.h"

#include <string>

#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_memory.h"

namespace longspan::backend::cuda {

base::Result<std::unique_ptr<CudaQueue>> CudaQueue::Create(int device) {
  std::unique_ptr<CudaQueue> queue(new CudaQueue(device));
  LONGSPAN_RETURN_IF_ERROR(queue->Open());
  return queue;
}

base::Status CudaQueue::Open() {
  LONGSPAN_RETURN_IF_CUDA(cudaSetDevice(device_), "use the GPU");
  LONGSPAN_RETURN_IF_CUDA(
      cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device_),
      "use the GPU");
  LONGSPAN_RETURN_IF_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                          "make a stream on the GPU");
  LONGSPAN_RETURN_IF_ERROR(LoadCublasLt());
  LONGSPAN_RETURN_IF_CUDA(cublasLtCreate(&cublas_), "start cuBLASLt");
  LONGSPAN_ASSIGN_OR_RETURN(cublas_workspace_, AllocateDevice(kCublasWorkspaceBytes));
  return base::OkStatus();
}

CudaQueue::~CudaQueue() {
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  if (cublas_ != nullptr) (void)cublasLtDestroy(cublas_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

base::Status CudaQueue::Synchronize() {
  Note(cudaStreamSynchronize(stream_), "compute");
  return first_error_;
}

base::Status CudaQueue::Upload(std::span<const std::byte> host, void* device) {
  // From pageable memory: the runtime stages what is small and waits for what is not.
  Note(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream_),
       "upload");
  return first_error_;
}

base::Status CudaQueue::Download(const void* device, std::span<std::byte> host) {
  Note(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_),
       "download");
  return Synchronize();
}

void CudaQueue::Note(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess && first_error_.ok())
    first_error_ = ToStatus(error, "run '" + std::string(what) + "' on the GPU");
}

void CudaQueue::Note(cublasStatus_t error, std::string_view what) {
  if (error != CUBLAS_STATUS_SUCCESS && first_error_.ok())
    first_error_ = ToStatus(error, "run '" + std::string(what) + "' on the GPU");
}

}  // namespace longspan::backend::cuda
