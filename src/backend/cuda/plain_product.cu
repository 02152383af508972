// Products by multiply-adds in f32, exact but for the sums: for f32, and for rows of bf16 that the
// matrix unit cannot read (their addresses or lengths are no multiples of 16 bytes).
#include <algorithm>

#include "backend/cuda/device_types.cuh"
#include "backend/cuda/packed_weight.h"
#include "backend/cuda/product.h"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int kTile = 64;   // rows and features of a block
constexpr int kDepth = 16;  // columns at once
constexpr int kEach = 4;    // rows and features of a thread
constexpr int kThreads = (kTile / kEach) * (kTile / kEach);

struct PlainProduct {
  const void* weights[kProductGroups];
  Product product;
};

// kTile rows by kDepth columns of a row-major matrix, transposed into shared memory.
template <typename T, typename RowOf>
__device__ void LoadTile(const T* matrix, int64_t stride, int64_t column, int64_t columns,
                         const RowOf& row_of, float (&tile)[kDepth][kTile + 1]) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    const int depth = i % kDepth;
    const int64_t row = row_of(i / kDepth);
    const bool valid = row >= 0 && column + depth < columns;
    tile[depth][i / kDepth] = valid ? Load(matrix + row * stride + column + depth) : 0.0f;
  }
}

// Blocks: (tile of features, group, first tile of rows).
template <typename X, typename Out>
__global__ void __launch_bounds__(kThreads)
    PlainProductKernel(const __grid_constant__ PlainProduct params) {
  __shared__ float x_tile[kDepth][kTile + 1];
  __shared__ float w_tile[kDepth][kTile + 1];
  const Product& p = params.product;
  const int64_t group = blockIdx.y;
  const int64_t begin = p.begin == nullptr ? 0 : p.begin[group];
  const int64_t end = p.begin == nullptr ? p.rows : p.begin[group + 1];
  const auto* x = static_cast<const X*>(p.x) + group * p.x_group_stride;
  const auto* weight = static_cast<const X*>(params.weights[group]);
  auto* out = static_cast<Out*>(p.out) + group * p.out_group_stride;
  const int64_t first_feature = static_cast<int64_t>(blockIdx.x) * kTile;
  const int thread_row = threadIdx.x / (kTile / kEach);
  const int thread_feature = threadIdx.x % (kTile / kEach);

  for (int64_t first = begin + static_cast<int64_t>(blockIdx.z) * kTile; first < end;
       first += static_cast<int64_t>(gridDim.z) * kTile) {
    float sums[kEach][kEach] = {};
    for (int64_t column = 0; column < p.columns; column += kDepth) {
      LoadTile(
          x, p.x_stride, column, p.columns,
          [&](int i) -> int64_t {
            if (first + i >= end) return -1;
            return p.source_rows == nullptr ? first + i : p.source_rows[first + i];
          },
          x_tile);
      LoadTile(
          weight, p.columns, column, p.columns,
          [&](int i) { return first_feature + i < p.features ? first_feature + i : int64_t{-1}; },
          w_tile);
      __syncthreads();
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth)
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int j = 0; j < kEach; ++j)
            sums[i][j] = fmaf(x_tile[depth][thread_row + i * (kTile / kEach)],
                              w_tile[depth][thread_feature + j * (kTile / kEach)], sums[i][j]);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t row = first + thread_row + i * (kTile / kEach);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t feature = first_feature + thread_feature + j * (kTile / kEach);
        if (row >= end || feature >= p.features) continue;
        const float bias = p.bias == nullptr ? 0.0f : p.bias[feature];
        Store(out + row * p.out_stride + feature, sums[i][j] + bias);
      }
    }
  }
}

}  // namespace

void MultiplyPlainly(tensor::ExecutionContext& context, const Product& product,
                     std::span<const ops::PackedWeight* const> weights, ProductTypes types) {
  PlainProduct params{.weights = {}, .product = product};
  for (size_t i = 0; i < weights.size(); ++i) params.weights[i] = AsCuda(*weights[i]).data();
  // Blocks of one group share its tiles of rows among them.
  const int64_t row_tiles = std::max<int64_t>(1, (product.rows + kTile - 1) / kTile);
  const int64_t most = product.begin == nullptr ? 4096 : 8;
  const dim3 grid(static_cast<unsigned>((product.features + kTile - 1) / kTile),
                  static_cast<unsigned>(weights.size()),
                  static_cast<unsigned>(std::min(row_tiles, most)));
  const cudaStream_t stream = StreamOf(context);
  if (types.x == DType::kF32)
    PlainProductKernel<float, float><<<grid, kThreads, 0, stream>>>(params);
  else if (types.out == DType::kF32)
    PlainProductKernel<__nv_bfloat16, float><<<grid, kThreads, 0, stream>>>(params);
  else
    PlainProductKernel<__nv_bfloat16, __nv_bfloat16><<<grid, kThreads, 0, stream>>>(params);
}

}  // namespace longspan::backend::cuda
