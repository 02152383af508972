// CUDA's errors as sentences.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <string_view>

#include "base/status.h"

namespace longspan::backend::cuda {

// Ok for success. `what` is the work that failed, as in "cannot WHAT": "copy to the GPU".
base::Status ToStatus(cudaError_t error, std::string_view what);
base::Status ToStatus(cublasStatus_t error, std::string_view what);

}  // namespace longspan::backend::cuda

// Returns a sentence from the enclosing function when a call of CUDA or cuBLASLt fails.
#define LONGSPAN_RETURN_IF_CUDA(expression, what) \
  LONGSPAN_RETURN_IF_ERROR(::longspan::backend::cuda::ToStatus((expression), (what)))
