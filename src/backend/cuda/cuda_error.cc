#include "backend/cuda/cuda_error.h"

namespace longspan::backend::cuda {

base::Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return base::OkStatus();
  if (error == cudaErrorMemoryAllocation)
    return base::ResourceExhausted("the GPU has no memory left to {}", what);
  return base::Internal("cannot {}: {} ({})", what, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

base::Status ToStatus(cublasStatus_t error, std::string_view what) {
  if (error == CUBLAS_STATUS_SUCCESS) return base::OkStatus();
  return base::Internal("cannot {}: {}", what, cublasLtGetStatusName(error));
}

}  // namespace longspan::backend::cuda
