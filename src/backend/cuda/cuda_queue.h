// A stream of one GPU, and what its ops share.
#pragma once

#include <cstddef>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "backend/cuda/staging_ring.h"
#include "base/result.h"
#include "tensor/buffer.h"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

// The stream that ops are put on, with a cuBLASLt handle and its workspace. The device is current
// in the thread that made it, which alone may use it. The first error that an op or a copy reports
// stays: Synchronize() returns it from then on.
class CudaQueue : public tensor::Queue {
 public:
  // What cuBLASLt gets for products that split their sums.
  static constexpr int64_t kCublasWorkspaceBytes = int64_t{64} << 20;

  static base::Result<std::unique_ptr<CudaQueue>> Create(int device);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  base::Status Synchronize() override;

  // In the order of the queue. Upload returns when `host` may be reused, which is before the copy
  // has happened; Download when the bytes are there.
  base::Status Upload(std::span<const std::byte> host, void* device);
  base::Status Download(const void* device, std::span<std::byte> host);
  // With `host` in pinned memory; back at once.
  base::Status StartUpload(std::span<const std::byte> host, void* device);
  base::Status StartDownload(const void* device, std::span<std::byte> host);

  int device() const { return device_; }
  int multiprocessors() const { return multiprocessors_; }
  cudaStream_t stream() const { return stream_; }
  cublasLtHandle_t cublas() const { return cublas_; }
  void* cublas_workspace() const { return cublas_workspace_.data(); }

  // Keeps the first failure; success changes nothing. `what` names the op or copy.
  void Note(cudaError_t error, std::string_view what);
  void Note(cublasStatus_t error, std::string_view what);
  const base::Status& first_error() const { return first_error_; }

  // What Synchronize asks besides, once the stream is done: what is not ok there takes the place of
  // errors of the device, which may be its consequence. Returns what RemoveCheck takes.
  int AddCheck(std::function<base::Status()> check);
  void RemoveCheck(int number) { checks_.erase(number); }

 private:
  explicit CudaQueue(int device) : device_(device) {}
  base::Status Open();

  int device_ = 0;
  int multiprocessors_ = 0;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t cublas_ = nullptr;
  tensor::Buffer cublas_workspace_;
  StagingRing uploads_;
  tensor::Buffer download_;  // pinned
  base::Status first_error_;
  std::map<int, std::function<base::Status()>> checks_;
  int next_check_ = 0;
};

}  // namespace longspan::backend::cuda
