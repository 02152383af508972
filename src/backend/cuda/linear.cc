// linear, head_linear and grouped_linear.
//
// Without bias and `deterministic`, linear is cuBLASLt's: the fastest for large products, but the
// order of its sums depends on the number of rows. All else is Multiply, whose order does not.
#include "backend/cuda/blas_linear.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/packed_weight.h"
#include "backend/cuda/product.h"

namespace longspan::backend::cuda {

using tensor::DType;

void Linear(ExecutionContext& context, const ops::LinearArgs& args) {
  if (args.x.size(0) == 0) return;
  const CudaWeight& weight = AsCuda(*args.weight);
  if (args.x.dtype() == DType::kBf16 && args.bias.empty() && !context.deterministic &&
      weight.columns() % 8 == 0 && MultiplyByBlas(context, args.x, weight.data(), args.out))
    return;
  Multiply(context,
           {.x = args.x.raw(),
            .x_stride = args.x.stride(0),
            .out = args.out.raw(),
            .out_stride = args.out.stride(0),
            .bias = args.bias.empty() ? nullptr : args.bias.data<float>(),
            .rows = args.x.size(0),
            .features = weight.rows(),
            .columns = weight.columns()},
           {&args.weight, 1}, {.x = args.x.dtype(), .out = args.out.dtype()}, "linear");
}

void HeadLinear(ExecutionContext& context, const ops::HeadLinearArgs& args) {
  Multiply(context,
           {.x = args.x.raw(),
            .x_stride = args.x.stride(0),
            .x_group_stride = args.x.stride(1),
            .out = args.out.raw(),
            .out_stride = args.out.stride(0),
            .out_group_stride = args.out.stride(1),
            .rows = args.x.size(0),
            .features = args.out.size(2),
            .columns = args.x.size(2)},
           args.weights, {.x = args.x.dtype(), .out = args.out.dtype()}, "head_linear");
}

void GroupedLinear(ExecutionContext& context, const ops::GroupedLinearArgs& args) {
  Multiply(context,
           {.x = args.x.raw(),
            .x_stride = args.x.stride(0),
            .out = args.out.raw(),
            .out_stride = args.out.stride(0),
            .begin = args.expert_begin.data<int32_t>(),
            .source_rows = args.source_rows.empty() ? nullptr : args.source_rows.data<int32_t>(),
            .rows = args.out.size(0),
            .features = args.out.size(1),
            .columns = args.x.size(1)},
           args.weights, {.x = args.x.dtype(), .out = args.out.dtype()}, "grouped_linear");
}

int64_t ProductWorkspaceBytes(int, const ops::WorkspaceShape&) { return 0; }

}  // namespace longspan::backend::cuda
