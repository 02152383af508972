// merge_attention: a block for some heads of a row.
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

constexpr int kThreads = 128;

struct Parts {
  const void* parts;       // [count, row_heads, dim]
  const float2* exp_sums;  // [count, row_heads]: m and l of ops/merge_attention.h
  void* out;
  int64_t out_row_stride;
  int64_t out_head_stride;
  int64_t row_heads;
  int64_t pieces;  // of a head
  int count;
  int heads;
  int dim;
};

// The sums are taken in the order of the parts, for every piece of a head by itself.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) MergeKernel(const Parts p) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t place = index / p.pieces;
  if (place >= p.row_heads) return;
  const int64_t column = index % p.pieces * kCount;
  float largest = -INFINITY;
  for (int i = 0; i < p.count; ++i) largest = fmaxf(largest, p.exp_sums[i * p.row_heads + place].x);
  Values<float, kCount> total;
#pragma unroll
  for (int i = 0; i < kCount; ++i) total.v[i] = 0;
  float sum = 0;
  for (int i = 0; i < p.count; ++i) {
    const float2 exp_sum = p.exp_sums[i * p.row_heads + place];
    const float weight = exp_sum.y * exp2f(exp_sum.x - largest);
    sum += weight;
    Values<T, kCount> piece;
    piece.Read(static_cast<const T*>(p.parts) + (i * p.row_heads + place) * p.dim + column);
#pragma unroll
    for (int j = 0; j < kCount; ++j) total.v[j] += weight * piece.v[j];
  }
  Values<T, kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) result.v[i] = total.v[i] / sum;
  result.Write(static_cast<T*>(p.out) + place / p.heads * p.out_row_stride +
               place % p.heads * p.out_head_stride + column);
}

template <typename T, int kCount>
void Launch(cudaStream_t stream, Parts params) {
  params.pieces = params.dim / kCount;
  const int64_t blocks = (params.row_heads * params.pieces + kThreads - 1) / kThreads;
  MergeKernel<T, kCount><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(params);
}

}  // namespace

void MergeAttention(ExecutionContext& context, const ops::MergeAttentionArgs& args) {
  if (args.out.elements() == 0) return;
  const int64_t dim = args.out.size(2);
  const Parts params = {.parts = args.parts.raw(),
                        .exp_sums = reinterpret_cast<const float2*>(args.exp_sums.data<float>()),
                        .out = args.out.raw(),
                        .out_row_stride = args.out.stride(0),
                        .out_head_stride = args.out.stride(1),
                        .row_heads = args.out.size(0) * args.out.size(1),
                        .pieces = 0,
                        .count = static_cast<int>(args.parts.size(0)),
                        .heads = static_cast<int>(args.out.size(1)),
                        .dim = static_cast<int>(dim)};
  const cudaStream_t stream = StreamOf(context);
  const bool vectors =
      IsVectorReadable(args.parts, dim) && IsVectorReadable(args.out, dim) && dim % 8 == 0;
  if (args.out.dtype() == tensor::DType::kF32)
    vectors ? Launch<float, 8>(stream, params) : Launch<float, 1>(stream, params);
  else
    vectors ? Launch<__nv_bfloat16, 8>(stream, params) : Launch<__nv_bfloat16, 1>(stream, params);
  NoteLaunch(context, "merge_attention");
}

}  // namespace longspan::backend::cuda
