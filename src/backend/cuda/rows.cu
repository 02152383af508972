// Ops that take every row by itself and are as fast as memory: embedding, gather, residual, gate,
// rotation. Each element is computed by itself, so that its bits depend on nothing else.
#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int kThreads = 256;

// One thread for each of `count` pieces.
dim3 BlocksFor(int64_t count) {
  return dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads));
}
__device__ int64_t ThreadIndex() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

// A matrix whose rows are a stride apart.
template <typename T>
struct Matrix {
  T* data;
  int64_t stride;

  __device__ T* at(int64_t row, int64_t column) const { return data + row * stride + column; }
};
template <typename T>
Matrix<T> MatrixOf(const tensor::View& view) {
  return {static_cast<T*>(view.raw()), view.stride(0)};
}
template <typename T>
Matrix<const T> MatrixOf(const tensor::ConstView& view) {
  return {static_cast<const T*>(view.raw()), view.stride(0)};
}

// Calls with an element type, and with how many elements a thread takes: 8 where `vectors`, else 1.
template <typename Function>
void ForType(DType type, bool vectors, const Function& function) {
  if (type == DType::kF32 && vectors) return function.template operator()<float, 8>();
  if (type == DType::kF32) return function.template operator()<float, 1>();
  if (vectors) return function.template operator()<__nv_bfloat16, 8>();
  return function.template operator()<__nv_bfloat16, 1>();
}

template <typename From, typename To, int kCount>
__global__ void EmbeddingKernel(Matrix<const From> table, const int32_t* tokens, Matrix<To> out,
                                int64_t rows, int64_t pieces) {
  const int64_t index = ThreadIndex();
  const int64_t row = index / pieces;
  if (row >= rows) return;
  const int64_t column = index % pieces * kCount;
  Values<From, kCount> values;
  values.Read(table.at(tokens[row], column));
  Values<To, kCount> converted;
#pragma unroll
  for (int i = 0; i < kCount; ++i) converted.v[i] = values.v[i];
  converted.Write(out.at(row, column));
}

// Rows as units of whatever size their addresses allow.
template <typename Unit>
__global__ void GatherKernel(Matrix<const Unit> x, const int32_t* index, Matrix<Unit> out,
                             int64_t rows, int64_t units) {
  const int64_t i = ThreadIndex();
  const int64_t row = i / units;
  if (row >= rows) return;
  *out.at(row, i % units) = *x.at(index[row], i % units);
}

template <typename T, int kCount>
__global__ void AddKernel(Matrix<T> x, Matrix<const T> y, int64_t rows, int64_t pieces) {
  const int64_t index = ThreadIndex();
  const int64_t row = index / pieces;
  if (row >= rows) return;
  const int64_t column = index % pieces * kCount;
  Values<T, kCount> a;
  Values<T, kCount> b;
  a.Read(x.at(row, column));
  b.Read(y.at(row, column));
#pragma unroll
  for (int i = 0; i < kCount; ++i) a.v[i] += b.v[i];
  a.Write(x.at(row, column));
}

template <typename T, int kCount>
__global__ void SiluMulKernel(Matrix<const T> gate_up, Matrix<T> out, int64_t rows, int64_t columns,
                              int64_t pieces) {
  const int64_t index = ThreadIndex();
  const int64_t row = index / pieces;
  if (row >= rows) return;
  const int64_t column = index % pieces * kCount;
  Values<T, kCount> gate;
  Values<T, kCount> up;
  gate.Read(gate_up.at(row, column));
  up.Read(gate_up.at(row, columns + column));
#pragma unroll
  for (int i = 0; i < kCount; ++i) gate.v[i] = gate.v[i] / (1.0f + expf(-gate.v[i])) * up.v[i];
  gate.Write(out.at(row, column));
}

// In double, as exact as any other backend: once per step.
__global__ void RopeTableKernel(const int32_t* positions, const float* frequencies, float amplitude,
                                Matrix<float> cosines, Matrix<float> sines, int64_t rows,
                                int64_t pairs) {
  const int64_t index = ThreadIndex();
  const int64_t row = index / pairs;
  if (row >= rows) return;
  const int64_t pair = index % pairs;
  const float angle = __fmul_rn(static_cast<float>(positions[row]), frequencies[pair]);
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  *cosines.at(row, pair) = static_cast<float>(amplitude * cosine);
  *sines.at(row, pair) = static_cast<float>(amplitude * sine);
}

struct RopeShape {
  int64_t rows;
  int64_t heads;
  int64_t head_stride;
  int64_t pairs;
  int64_t pieces;  // of a head
};

// Half-split pairs i and i + pairs, kCount pairs at once.
template <typename T, int kCount>
__global__ void RopeHalvesKernel(Matrix<T> x, Matrix<const float> cosines,
                                 Matrix<const float> sines, RopeShape shape) {
  const int64_t index = ThreadIndex();
  const int64_t row = index / (shape.heads * shape.pieces);
  if (row >= shape.rows) return;
  const int64_t head = index / shape.pieces % shape.heads;
  const int64_t pair = index % shape.pieces * kCount;
  T* first = x.at(row, head * shape.head_stride + pair);
  Values<T, kCount> a;
  Values<T, kCount> b;
  Values<float, kCount> cosine;
  Values<float, kCount> sine;
  a.Read(first);
  b.Read(first + shape.pairs);
  cosine.Read(cosines.at(row, pair));
  sine.Read(sines.at(row, pair));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float turned = a.v[i] * cosine.v[i] - b.v[i] * sine.v[i];
    b.v[i] = b.v[i] * cosine.v[i] + a.v[i] * sine.v[i];
    a.v[i] = turned;
  }
  a.Write(first);
  b.Write(first + shape.pairs);
}

// Pairs 2 i and 2 i + 1, kCount / 2 of them at once.
template <typename T, int kCount>
__global__ void RopePairsKernel(Matrix<T> x, Matrix<const float> cosines, Matrix<const float> sines,
                                RopeShape shape) {
  const int64_t index = ThreadIndex();
  const int64_t row = index / (shape.heads * shape.pieces);
  if (row >= shape.rows) return;
  const int64_t head = index / shape.pieces % shape.heads;
  constexpr int kPairs = kCount == 1 ? 1 : kCount / 2;
  const int64_t pair = index % shape.pieces * kPairs;
  T* to = x.at(row, head * shape.head_stride + 2 * pair);
  float v[2 * kPairs];
  if constexpr (kCount == 1) {
    v[0] = Load(to);
    v[1] = Load(to + 1);
  } else {
    Values<T, kCount> values;
    values.Read(to);
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = values.v[i];
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float cosine = *cosines.at(row, pair + i);
    const float sine = *sines.at(row, pair + i);
    const float turned = v[2 * i] * cosine - v[2 * i + 1] * sine;
    v[2 * i + 1] = v[2 * i + 1] * cosine + v[2 * i] * sine;
    v[2 * i] = turned;
  }
  if constexpr (kCount == 1) {
    Store(to, v[0]);
    Store(to + 1, v[1]);
  } else {
    Values<T, kCount> values;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.v[i] = v[i];
    values.Write(to);
  }
}

template <typename From, typename To>
void LaunchEmbedding(cudaStream_t stream, const ops::EmbeddingArgs& args) {
  const int64_t rows = args.out.size(0);
  const int64_t columns = args.out.size(1);
  const auto* tokens = args.tokens.data<int32_t>();
  const auto table = MatrixOf<From>(args.table);
  const auto out = MatrixOf<To>(args.out);
  if (columns % 8 == 0 && IsVectorReadable(args.table, columns) &&
      IsVectorReadable(args.out, columns))
    EmbeddingKernel<From, To, 8><<<BlocksFor(rows * columns / 8), kThreads, 0, stream>>>(
        table, tokens, out, rows, columns / 8);
  else
    EmbeddingKernel<From, To, 1>
        <<<BlocksFor(rows * columns), kThreads, 0, stream>>>(table, tokens, out, rows, columns);
}

template <typename Unit>
void LaunchGather(cudaStream_t stream, const ops::GatherRowsArgs& args) {
  const int64_t size = tensor::SizeOf(args.x.dtype());
  constexpr int64_t kUnit = sizeof(Unit);
  const int64_t units = args.x.size(1) * size / kUnit;
  const Matrix<const Unit> x = {static_cast<const Unit*>(args.x.raw()),
                                args.x.stride(0) * size / kUnit};
  const Matrix<Unit> out = {static_cast<Unit*>(args.out.raw()), args.out.stride(0) * size / kUnit};
  GatherKernel<Unit><<<BlocksFor(args.out.size(0) * units), kThreads, 0, stream>>>(
      x, args.index.data<int32_t>(), out, args.out.size(0), units);
}

}  // namespace

void Embedding(ExecutionContext& context, const ops::EmbeddingArgs& args) {
  if (args.out.elements() == 0) return;
  const cudaStream_t stream = StreamOf(context);
  const bool to_f32 = args.out.dtype() == DType::kF32;
  if (args.table.dtype() == DType::kF32) {
    to_f32 ? LaunchEmbedding<float, float>(stream, args)
           : LaunchEmbedding<float, __nv_bfloat16>(stream, args);
  } else {
    to_f32 ? LaunchEmbedding<__nv_bfloat16, float>(stream, args)
           : LaunchEmbedding<__nv_bfloat16, __nv_bfloat16>(stream, args);
  }
  NoteLaunch(context, "embedding");
}

void GatherRows(ExecutionContext& context, const ops::GatherRowsArgs& args) {
  if (args.out.elements() == 0) return;
  const int64_t size = tensor::SizeOf(args.x.dtype());
  // What divides all addresses and lengths.
  const uint64_t all =
      reinterpret_cast<uintptr_t>(args.x.raw()) | reinterpret_cast<uintptr_t>(args.out.raw()) |
      static_cast<uint64_t>((args.x.stride(0) | args.out.stride(0) | args.x.size(1)) * size);
  const cudaStream_t stream = StreamOf(context);
  if (all % 16 == 0)
    LaunchGather<uint4>(stream, args);
  else if (all % 4 == 0)
    LaunchGather<uint32_t>(stream, args);
  else if (all % 2 == 0)
    LaunchGather<uint16_t>(stream, args);
  else
    LaunchGather<uint8_t>(stream, args);
  NoteLaunch(context, "gather_rows");
}

void Add(ExecutionContext& context, const ops::AddArgs& args) {
  const int64_t rows = args.x.size(0);
  const int64_t columns = args.x.size(1);
  if (rows * columns == 0) return;
  const bool vectors =
      columns % 8 == 0 && IsVectorReadable(args.x, columns) && IsVectorReadable(args.y, columns);
  ForType(args.x.dtype(), vectors, [&]<typename T, int kCount>() {
    const int64_t pieces = columns / kCount;
    AddKernel<T, kCount><<<BlocksFor(rows * pieces), kThreads, 0, StreamOf(context)>>>(
        MatrixOf<T>(args.x), MatrixOf<T>(args.y), rows, pieces);
  });
  NoteLaunch(context, "add");
}

void SiluMul(ExecutionContext& context, const ops::SiluMulArgs& args) {
  const int64_t rows = args.out.size(0);
  const int64_t columns = args.out.size(1);
  if (rows * columns == 0) return;
  const bool vectors = columns % 8 == 0 && IsVectorReadable(args.gate_up, columns) &&
                       IsVectorReadable(args.out, columns);
  ForType(args.out.dtype(), vectors, [&]<typename T, int kCount>() {
    const int64_t pieces = columns / kCount;
    SiluMulKernel<T, kCount><<<BlocksFor(rows * pieces), kThreads, 0, StreamOf(context)>>>(
        MatrixOf<T>(args.gate_up), MatrixOf<T>(args.out), rows, columns, pieces);
  });
  NoteLaunch(context, "silu_mul");
}

void RopeTable(ExecutionContext& context, const ops::RopeTableArgs& args) {
  const int64_t rows = args.cosines.size(0);
  const int64_t pairs = args.cosines.size(1);
  if (rows * pairs == 0) return;
  RopeTableKernel<<<BlocksFor(rows * pairs), kThreads, 0, StreamOf(context)>>>(
      args.positions.data<int32_t>(), args.inverse_frequencies.data<float>(), args.amplitude,
      MatrixOf<float>(args.cosines), MatrixOf<float>(args.sines), rows, pairs);
  NoteLaunch(context, "rope_table");
}

void Rope(ExecutionContext& context, const ops::RopeArgs& args) {
  const int64_t pairs = args.x.size(2) / 2;
  if (args.x.elements() == 0) return;
  const bool interleaved = args.pairs == spec::RopePairs::kInterleaved;
  const bool vectors = pairs % 8 == 0 && IsVectorReadable(args.x, args.x.size(2)) &&
                       IsVectorReadable(args.cosines, pairs) && IsVectorReadable(args.sines, pairs);
  ForType(args.x.dtype(), vectors, [&]<typename T, int kCount>() {
    const int64_t pieces = interleaved && kCount > 1 ? 2 * pairs / kCount : pairs / kCount;
    const RopeShape shape = {args.x.size(0), args.x.size(1), args.x.stride(1), pairs, pieces};
    const dim3 blocks = BlocksFor(shape.rows * shape.heads * pieces);
    const auto x = MatrixOf<T>(args.x);
    const auto cosines = MatrixOf<float>(args.cosines);
    const auto sines = MatrixOf<float>(args.sines);
    if (interleaved)
      RopePairsKernel<T, kCount>
          <<<blocks, kThreads, 0, StreamOf(context)>>>(x, cosines, sines, shape);
    else
      RopeHalvesKernel<T, kCount>
          <<<blocks, kThreads, 0, StreamOf(context)>>>(x, cosines, sines, shape);
  });
  NoteLaunch(context, "rope");
}

}  // namespace longspan::backend::cuda
