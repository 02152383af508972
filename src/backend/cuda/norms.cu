// rms_norm and layer_norm. A row is summed by a fixed number of threads in a fixed order, which
// depends on its length and alignment alone.
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int kMostThreads = 256;

struct NormRows {
  const void* x;
  void* out;
  int64_t rows;
  int64_t heads;
  int64_t x_stride;
  int64_t x_head_stride;
  int64_t out_stride;
  int64_t out_head_stride;
  int64_t columns;
  const float* weight;
  const float* bias;  // null: RMSNorm
  float epsilon;
};

// kThreads threads for every row (or head of one): part of a warp, a warp, or the whole block. A
// thread keeps kKept pieces of the row in registers, and reads what is beyond them again.
template <typename T, int kCount, int kThreads, int kKept, bool kCentred>
__global__ void __launch_bounds__(kMostThreads) NormKernel(const NormRows p) {
  constexpr int kBlock = kThreads < 128 ? kMostThreads : kThreads;
  __shared__ float scratch[2][kMostThreads / 32];
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * (kBlock / kThreads) + threadIdx.x / kThreads;
  if (index >= p.rows * p.heads) return;
  const int64_t row = index / p.heads;
  const int64_t head = index % p.heads;
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride + head * p.x_head_stride;
  T* out = static_cast<T*>(p.out) + row * p.out_stride + head * p.out_head_stride;
  const int thread = threadIdx.x % kThreads;
  const auto columns = static_cast<float>(p.columns);

  Values<T, kCount> kept[kKept];
  const auto for_pieces = [&](const auto& use) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int64_t column = (thread + static_cast<int64_t>(i) * kThreads) * kCount;
      if (column < p.columns) use(kept[i], column);
    }
    for (int64_t column = (thread + static_cast<int64_t>(kKept) * kThreads) * kCount;
         column < p.columns; column += kThreads * kCount) {
      Values<T, kCount> piece;
      piece.Read(x + column);
      use(piece, column);
    }
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int64_t column = (thread + static_cast<int64_t>(i) * kThreads) * kCount;
    if (column < p.columns) kept[i].Read(x + column);
  }

  float mean = 0.0f;
  if constexpr (kCentred) {
    float sum = 0.0f;
    for_pieces([&](const Values<T, kCount>& piece, int64_t) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum += piece.v[i];
    });
    mean = BlockSum<kThreads>(sum, scratch[0]) / columns;
  }
  float squares = 0.0f;
  for_pieces([&](const Values<T, kCount>& piece, int64_t) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float centred = piece.v[i] - mean;
      squares += centred * centred;
    }
  });
  const float variance = BlockSum<kThreads>(squares, scratch[1]) / columns;
  const float factor = 1.0f / sqrtf(variance + p.epsilon);
  for_pieces([&](const Values<T, kCount>& piece, int64_t column) {
    Values<T, kCount> result;
    Values<float, kCount> weight;
    weight.Read(p.weight + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.v[i] = (piece.v[i] - mean) * factor * weight.v[i];
    if constexpr (kCentred) {
      Values<float, kCount> bias;
      bias.Read(p.bias + column);
#pragma unroll
      for (int i = 0; i < kCount; ++i) result.v[i] += bias.v[i];
    }
    result.Write(out + column);
  });
}

template <typename T, int kCount, int kThreads, int kKept, bool kCentred>
void LaunchRows(cudaStream_t stream, const NormRows& p) {
  constexpr int kBlock = kThreads < 128 ? kMostThreads : kThreads;
  constexpr int64_t kRowsOfBlock = kBlock / kThreads;
  const int64_t blocks = (p.rows * p.heads + kRowsOfBlock - 1) / kRowsOfBlock;
  NormKernel<T, kCount, kThreads, kKept, kCentred>
      <<<static_cast<unsigned>(blocks), kBlock, 0, stream>>>(p);
}

template <typename T, int kCount, bool kCentred>
void LaunchNorm(cudaStream_t stream, const NormRows& p) {
  if (p.columns <= 16 * kCount)
    LaunchRows<T, kCount, 16, 1, kCentred>(stream, p);
  else if (p.columns <= 4 * 32 * kCount)
    LaunchRows<T, kCount, 32, 4, kCentred>(stream, p);
  else if (p.columns <= 4 * 128 * kCount)
    LaunchRows<T, kCount, 128, 4, kCentred>(stream, p);
  else
    LaunchRows<T, kCount, 256, 4, kCentred>(stream, p);
}

template <bool kCentred>
void Norm(ExecutionContext& context, const NormRows& p, DType type, bool vectors) {
  const cudaStream_t stream = StreamOf(context);
  if (type == DType::kF32)
    vectors ? LaunchNorm<float, 8, kCentred>(stream, p) : LaunchNorm<float, 1, kCentred>(stream, p);
  else
    vectors ? LaunchNorm<__nv_bfloat16, 8, kCentred>(stream, p)
            : LaunchNorm<__nv_bfloat16, 1, kCentred>(stream, p);
}

}  // namespace

void RmsNorm(ExecutionContext& context, const ops::RmsNormArgs& args) {
  if (args.x.elements() == 0) return;
  const bool has_heads = args.x.rank() == 3;
  const int64_t columns = args.x.size(args.x.rank() - 1);
  const NormRows rows = {.x = args.x.raw(),
                         .out = args.out.raw(),
                         .rows = args.x.size(0),
                         .heads = has_heads ? args.x.size(1) : 1,
                         .x_stride = args.x.stride(0),
                         .x_head_stride = has_heads ? args.x.stride(1) : 0,
                         .out_stride = args.out.stride(0),
                         .out_head_stride = has_heads ? args.out.stride(1) : 0,
                         .columns = columns,
                         .weight = args.weight.data<float>(),
                         .bias = nullptr,
                         .epsilon = static_cast<float>(args.epsilon)};
  const bool vectors = columns % 8 == 0 && IsVectorReadable(args.x, columns) &&
                       IsVectorReadable(args.out, columns) &&
                       IsVectorReadable(args.weight, columns);
  Norm<false>(context, rows, args.x.dtype(), vectors);
  NoteLaunch(context, "rms_norm");
}

void LayerNorm(ExecutionContext& context, const ops::LayerNormArgs& args) {
  if (args.x.elements() == 0) return;
  const int64_t columns = args.x.size(1);
  const NormRows rows = {.x = args.x.raw(),
                         .out = args.out.raw(),
                         .rows = args.x.size(0),
                         .heads = 1,
                         .x_stride = args.x.stride(0),
                         .x_head_stride = 0,
                         .out_stride = args.out.stride(0),
                         .out_head_stride = 0,
                         .columns = columns,
                         .weight = args.weight.data<float>(),
                         .bias = args.bias.data<float>(),
                         .epsilon = static_cast<float>(args.epsilon)};
  const bool vectors = columns % 8 == 0 && IsVectorReadable(args.x, columns) &&
                       IsVectorReadable(args.out, columns) &&
                       IsVectorReadable(args.weight, columns) &&
                       IsVectorReadable(args.bias, columns);
  Norm<true>(context, rows, args.x.dtype(), vectors);
  NoteLaunch(context, "layer_norm");
}

}  // namespace longspan::backend::cuda
