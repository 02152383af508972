// What an op of this backend takes from its context.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <string_view>

#include "backend/cuda/cuda_queue.h"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

inline CudaQueue& QueueOf(tensor::ExecutionContext& context) {
  return static_cast<CudaQueue&>(context.queue);
}
inline cudaStream_t StreamOf(tensor::ExecutionContext& context) {
  return QueueOf(context).stream();
}
inline int MultiprocessorsOf(tensor::ExecutionContext& context) {
  return QueueOf(context).multiprocessors();
}
// The handle, and CudaQueue::kCublasWorkspaceBytes of device memory for it (256-byte aligned).
inline cublasLtHandle_t CublasOf(tensor::ExecutionContext& context) {
  return QueueOf(context).cublas();
}
inline void* CublasWorkspaceOf(tensor::ExecutionContext& context) {
  return QueueOf(context).cublas_workspace();
}

// After every launch: NoteLaunch(context, "rms_norm"). After every other call of CUDA or cuBLASLt:
// QueueOf(context).Note(code, "linear").
inline void NoteLaunch(tensor::ExecutionContext& context, std::string_view op) {
  QueueOf(context).Note(cudaGetLastError(), op);
}

}  // namespace longspan::backend::cuda
