#include "backend/cuda/blas_linear.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

// cuBLASLt's matrices are column-major: its A is W transposed ([columns, features], read as it is),
// B is x and D is out, each a column per row of ours.
struct Shape {
  int device;
  int64_t rows;
  int64_t features;
  int64_t columns;
  int64_t x_stride;
  int64_t out_stride;
  bool out_is_f32;
  int weight_alignment;  // bytes
  int x_alignment;
  int out_alignment;

  auto Key() const {
    return std::tie(device, rows, features, columns, x_stride, out_stride, out_is_f32,
                    weight_alignment, x_alignment, out_alignment);
  }
  bool operator<(const Shape& other) const { return Key() < other.Key(); }
};

int AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<int>(std::min<uintptr_t>(256, address & (~address + 1)));
}

// Of one shape: the descriptors and, where there is one, the kernel.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Shape& shape) {
    ok_ = Describe(shape) && Choose(handle, shape);
  }
  ~Plan() {
    for (const cublasLtMatrixLayout_t layout : {weight_, x_, out_})
      if (layout != nullptr) (void)cublasLtMatrixLayoutDestroy(layout);
    if (product_ != nullptr) (void)cublasLtMatmulDescDestroy(product_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  bool ok() const { return ok_; }

  cublasStatus_t Run(tensor::ExecutionContext& context, const void* weight, const void* x,
                     void* out) const {
    const float one = 1;
    const float zero = 0;
    return cublasLtMatmul(CublasOf(context), product_, &one, weight, weight_, x, x_, &zero, out,
                          out_, out, out_, &algorithm_, CublasWorkspaceOf(context),
                          CudaQueue::kCublasWorkspaceBytes, StreamOf(context));
  }

 private:
  bool Describe(const Shape& shape) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    return cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof(transposed)) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&weight_, CUDA_R_16BF, shape.columns, shape.features,
                                      shape.columns) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&x_, CUDA_R_16BF, shape.columns, shape.rows,
                                      shape.x_stride) == CUBLAS_STATUS_SUCCESS &&
           cublasLtMatrixLayoutCreate(&out_, shape.out_is_f32 ? CUDA_R_32F : CUDA_R_16BF,
                                      shape.features, shape.rows,
                                      shape.out_stride) == CUBLAS_STATUS_SUCCESS;
  }

  bool Choose(cublasLtHandle_t handle, const Shape& shape) {
    cublasLtMatmulPreference_t preference = nullptr;
    if (cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return false;
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)) ==
             CUBLAS_STATUS_SUCCESS;
    };
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    // Not the scheme that adds parts up in place, in any order.
    const bool chosen =
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            static_cast<uint64_t>(CudaQueue::kCublasWorkspaceBytes)) &&
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
            static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            static_cast<uint32_t>(shape.weight_alignment)) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(shape.x_alignment)) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            static_cast<uint32_t>(shape.out_alignment)) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
            static_cast<uint32_t>(shape.out_alignment)) &&
        cublasLtMatmulAlgoGetHeuristic(handle, product_, weight_, x_, out_, out_, preference, 1,
                                       &result, &found) == CUBLAS_STATUS_SUCCESS &&
        found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    (void)cublasLtMatmulPreferenceDestroy(preference);
    algorithm_ = result.algo;
    return chosen;
  }

  bool ok_ = false;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

// Of all queues of the process. Entries stay: there are as many as shapes of products and numbers
// of rows in a step.
const Plan& PlanOf(cublasLtHandle_t handle, const Shape& shape) {
  static std::mutex mutex;
  static auto& plans = *new std::map<Shape, Plan>;
  const std::lock_guard lock(mutex);
  return plans.try_emplace(shape, handle, shape).first->second;
}

}  // namespace

bool MultiplyByBlas(tensor::ExecutionContext& context, const tensor::ConstView& x,
                    const void* weight, const tensor::View& out) {
  const Shape shape = {.device = QueueOf(context).device(),
                       .rows = x.size(0),
                       .features = out.size(1),
                       .columns = x.size(1),
                       .x_stride = x.stride(0),
                       .out_stride = out.stride(0),
                       .out_is_f32 = out.dtype() == DType::kF32,
                       .weight_alignment = AlignmentOf(weight),
                       .x_alignment = AlignmentOf(x.raw()),
                       .out_alignment = AlignmentOf(out.raw())};
  const Plan& plan = PlanOf(CublasOf(context), shape);
  if (!plan.ok()) return false;
  QueueOf(context).Note(plan.Run(context, weight, x.raw(), out.raw()), "linear");
  return true;
}

}  // namespace longspan::backend::cuda
