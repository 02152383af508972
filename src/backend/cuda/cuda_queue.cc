#include "backend/cuda/cuda_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_memory.h"

namespace longspan::backend::cuda {
namespace {

constexpr int64_t kDownloadBytes = int64_t{4} << 20;

}  // namespace

base::Result<std::unique_ptr<CudaQueue>> CudaQueue::Create(int device) {
  std::unique_ptr<CudaQueue> queue(new CudaQueue(device));
  LONGSPAN_RETURN_IF_ERROR(queue->Open());
  return queue;
}

base::Status CudaQueue::Open() {
  LONGSPAN_RETURN_IF_ERROR(CheckDevice(device_));
  LONGSPAN_RETURN_IF_CUDA(cudaSetDevice(device_), "use the GPU");
  LONGSPAN_RETURN_IF_CUDA(
      cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device_),
      "use the GPU");
  LONGSPAN_RETURN_IF_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                          "make a stream on the GPU");
  LONGSPAN_RETURN_IF_ERROR(LoadCublasLt());
  LONGSPAN_RETURN_IF_CUDA(cublasLtCreate(&cublas_), "start cuBLASLt");
  LONGSPAN_ASSIGN_OR_RETURN(cublas_workspace_, AllocateDevice(kCublasWorkspaceBytes));
  LONGSPAN_ASSIGN_OR_RETURN(download_, AllocatePinned(kDownloadBytes));
  return uploads_.Open();
}

CudaQueue::~CudaQueue() {
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  if (cublas_ != nullptr) (void)cublasLtDestroy(cublas_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

base::Status CudaQueue::Synchronize() {
  Note(cudaStreamSynchronize(stream_), "compute");
  for (const auto& [number, check] : checks_) {
    base::Status status = check();
    if (status.ok()) continue;
    first_error_ = std::move(status);
    break;
  }
  return first_error_;
}

int CudaQueue::AddCheck(std::function<base::Status()> check) {
  checks_.emplace(next_check_, std::move(check));
  return next_check_++;
}

base::Status CudaQueue::Upload(std::span<const std::byte> host, void* device) {
  Note(uploads_.Upload(host, device, stream_), "upload");
  return first_error_;
}

base::Status CudaQueue::Download(const void* device, std::span<std::byte> host) {
  const auto* from = static_cast<const std::byte*>(device);
  while (!host.empty()) {
    const size_t bytes = std::min(host.size(), static_cast<size_t>(kDownloadBytes));
    Note(cudaMemcpyAsync(download_.data(), from, bytes, cudaMemcpyDeviceToHost, stream_),
         "download");
    LONGSPAN_RETURN_IF_ERROR(Synchronize());
    std::memcpy(host.data(), download_.data(), bytes);
    host = host.subspan(bytes);
    from += bytes;
  }
  return first_error_;
}

base::Status CudaQueue::StartUpload(std::span<const std::byte> host, void* device) {
  Note(cudaMemcpyAsync(device, host.data(), host.size(), cudaMemcpyHostToDevice, stream_),
       "upload");
  return first_error_;
}

base::Status CudaQueue::StartDownload(const void* device, std::span<std::byte> host) {
  Note(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_),
       "download");
  return first_error_;
}

// What the device was computing is lost, and often its context with it: new processes may do
// better.
void CudaQueue::Note(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess && first_error_.ok())
    first_error_ = base::DataLoss("the GPU failed in '{}': {} ({})", what,
                                  cudaGetErrorString(error), cudaGetErrorName(error));
}

void CudaQueue::Note(cublasStatus_t error, std::string_view what) {
  if (error != CUBLAS_STATUS_SUCCESS && first_error_.ok())
    first_error_ = base::DataLoss("the GPU failed in '{}': {}", what, cublasLtGetStatusName(error));
}

}  // namespace longspan::backend::cuda
