#include "backend/cuda/cublas_lt.h"

#include <array>
#include <cublasLt.h>
#include <dlfcn.h>

#include "base/check.h"

// Every function of <cublasLt.h> that this backend calls: its name, parameters, arguments.
#define LONGSPAN_CUBLASLT_FUNCTIONS(F)                                                            \
  F(cublasLtCreate, (cublasLtHandle_t * handle), (handle))                                        \
  F(cublasLtDestroy, (cublasLtHandle_t handle), (handle))                                         \
  F(cublasLtMatmul,                                                                               \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha, const void* a, \
     cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,             \
     const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,                   \
     cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,     \
     size_t workspace_bytes, cudaStream_t stream),                                                \
    (handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,        \
     algorithm, workspace, workspace_bytes, stream))                                              \
  F(cublasLtMatmulAlgoGetHeuristic,                                                               \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a_layout,  \
     cublasLtMatrixLayout_t b_layout, cublasLtMatrixLayout_t c_layout,                            \
     cublasLtMatrixLayout_t d_layout, cublasLtMatmulPreference_t preference, int wanted,          \
     cublasLtMatmulHeuristicResult_t results[], int* found),                                      \
    (handle, description, a_layout, b_layout, c_layout, d_layout, preference, wanted, results,    \
     found))                                                                                      \
  F(cublasLtMatmulDescCreate,                                                                     \
    (cublasLtMatmulDesc_t * description, cublasComputeType_t compute, cudaDataType_t scale),      \
    (description, compute, scale))                                                                \
  F(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t description), (description))                 \
  F(cublasLtMatmulDescSetAttribute,                                                               \
    (cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,                  \
     const void* value, size_t bytes),                                                            \
    (description, attribute, value, bytes))                                                       \
  F(cublasLtMatrixLayoutCreate,                                                                   \
    (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns,         \
     int64_t leading),                                                                            \
    (layout, type, rows, columns, leading))                                                       \
  F(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))                       \
  F(cublasLtMatrixLayoutSetAttribute,                                                             \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value, \
     size_t bytes),                                                                               \
    (layout, attribute, value, bytes))                                                            \
  F(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference), (preference))      \
  F(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference))       \
  F(cublasLtMatmulPreferenceSetAttribute,                                                         \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,       \
     const void* value, size_t bytes),                                                            \
    (preference, attribute, value, bytes))

namespace longspan::backend::cuda {
namespace {

struct Functions {
  const char* (*status_name)(cublasStatus_t) = nullptr;
#define LONGSPAN_MEMBER(name, parameters, arguments) cublasStatus_t(*name) parameters = nullptr;
  // The names are the library's.
  LONGSPAN_CUBLASLT_FUNCTIONS(LONGSPAN_MEMBER)  // NOLINT(readability-identifier-naming)
#undef LONGSPAN_MEMBER
};

Functions functions;

// The loader's own search first (LD_LIBRARY_PATH), then where the toolkit puts it.
constexpr std::array kPlaces = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"};

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

base::Status Load() {
  void* library = nullptr;
  for (const char* place : kPlaces)
    if (library == nullptr) library = ::dlopen(place, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return base::NotFound(
        "cuBLASLt was not found: put the folder of libcublasLt.so.13 (CUDA 13) into "
        "LD_LIBRARY_PATH, or use --backend cpu");
  bool complete = Find(library, "cublasLtGetStatusName", functions.status_name);
#define LONGSPAN_FIND(name, parameters, arguments) \
  complete = Find(library, #name, functions.name) && complete;
  LONGSPAN_CUBLASLT_FUNCTIONS(LONGSPAN_FIND)
#undef LONGSPAN_FIND
  if (!complete) return base::Unimplemented("libcublasLt.so.13 lacks functions of CUDA 13");
  return base::OkStatus();
}

}  // namespace

base::Status LoadCublasLt() {
  static const base::Status status = Load();
  return status;
}

}  // namespace longspan::backend::cuda

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  auto* const function = longspan::backend::cuda::functions.status_name;
  return function == nullptr ? "cuBLASLt is not loaded" : function(status);
}

// Under names of our own, which the assembler writes as the library's.
#define LONGSPAN_FORWARD(name, parameters, arguments)                                             \
  cublasStatus_t Forward_##name parameters __asm__(#name);                                        \
  cublasStatus_t Forward_##name parameters {                                                      \
    LONGSPAN_CHECK(longspan::backend::cuda::functions.name != nullptr, "cuBLASLt is not loaded"); \
    return longspan::backend::cuda::functions.name arguments;                                     \
  }
// As many parameters as the library's functions have.
// NOLINTBEGIN(readability-function-size,readability-identifier-naming)
LONGSPAN_CUBLASLT_FUNCTIONS(LONGSPAN_FORWARD)
// NOLINTEND(readability-function-size,readability-identifier-naming)
#undef LONGSPAN_FORWARD

}  // extern "C"
