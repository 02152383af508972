// Ops that take every row by itself: embedding, gather, norms, residual, gate.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/reference/kernels.h"
#include "backend/reference/packed_matrix.h"
#include "backend/reference/thread_scratch.h"
#include "tensor/host_memory.h"

namespace longspan::backend::reference {

void Embedding(tensor::ExecutionContext& context, const ops::EmbeddingArgs& args) {
  const auto* tokens = args.tokens.data<int32_t>();
  if (args.table.empty()) {
    const PackedMatrix& table = PackedMatrix::From(args.packed);
    Threads(context).ParallelFor(args.out.size(0), [&](int64_t row, int) {
      std::copy_n(table.row(tokens[row]), table.columns(), args.out.row<float>(row));
    });
    return;
  }
  Threads(context).ParallelFor(args.out.size(0), [&](int64_t row, int) {
    tensor::WidenRow(args.table, tokens[row], args.out.row<float>(row));
  });
}

void GatherRows(tensor::ExecutionContext& context, const ops::GatherRowsArgs& args) {
  const auto* index = args.index.data<int32_t>();
  const int64_t size = tensor::SizeOf(args.x.dtype());
  const auto* from = static_cast<const std::byte*>(args.x.raw());
  auto* to = static_cast<std::byte*>(args.out.raw());
  Threads(context).ParallelFor(args.out.size(0), [&](int64_t row, int) {
    std::memcpy(to + row * args.out.stride(0) * size, from + index[row] * args.x.stride(0) * size,
                args.x.size(1) * size);
  });
}

namespace {

void NormRow(const float* x, const ops::RmsNormArgs& args, float* out) {
  const int64_t columns = args.x.size(args.x.rank() - 1);
  const auto* weight = args.weight.data<float>();
  double squares = 0;
  for (int64_t i = 0; i < columns; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double root = std::sqrt(squares / static_cast<double>(columns) + args.epsilon);
  for (int64_t i = 0; i < columns; ++i) out[i] = static_cast<float>(x[i] / root * weight[i]);
}

}  // namespace

void RmsNorm(tensor::ExecutionContext& context, const ops::RmsNormArgs& args) {
  const int64_t heads = args.x.rank() == 3 ? args.x.size(1) : 1;
  const int64_t head_stride = args.x.rank() == 3 ? args.x.stride(1) : 0;
  const int64_t out_head_stride = args.x.rank() == 3 ? args.out.stride(1) : 0;
  Threads(context).ParallelFor(args.x.size(0), [&](int64_t row, int) {
    for (int64_t head = 0; head < heads; ++head)
      NormRow(args.x.row<float>(row) + head * head_stride, args,
              args.out.row<float>(row) + head * out_head_stride);
  });
}

void LayerNorm(tensor::ExecutionContext& context, const ops::LayerNormArgs& args) {
  const int64_t columns = args.x.size(1);
  const auto* weight = args.weight.data<float>();
  const auto* bias = args.bias.data<float>();
  Threads(context).ParallelFor(args.x.size(0), [&](int64_t row, int) {
    const float* x = args.x.row<float>(row);
    float* out = args.out.row<float>(row);
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += x[i];
    const double mean = sum / static_cast<double>(columns);
    double squares = 0;
    for (int64_t i = 0; i < columns; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double root = std::sqrt(squares / static_cast<double>(columns) + args.epsilon);
    for (int64_t i = 0; i < columns; ++i)
      out[i] = static_cast<float>((x[i] - mean) / root * weight[i] + bias[i]);
  });
}

void Add(tensor::ExecutionContext& context, const ops::AddArgs& args) {
  Threads(context).ParallelFor(args.x.size(0), [&](int64_t row, int) {
    float* x = args.x.row<float>(row);
    const float* y = args.y.row<float>(row);
    for (int64_t i = 0; i < args.x.size(1); ++i) x[i] += y[i];
  });
}

void SiluMul(tensor::ExecutionContext& context, const ops::SiluMulArgs& args) {
  const int64_t columns = args.out.size(1);
  Threads(context).ParallelFor(args.out.size(0), [&](int64_t row, int) {
    const float* gate = args.gate_up.row<float>(row);
    const float* up = gate + columns;
    float* out = args.out.row<float>(row);
    for (int64_t i = 0; i < columns; ++i) {
      const double x = gate[i];
      out[i] = static_cast<float>(x / (1 + std::exp(-x)) * up[i]);
    }
  });
}

}  // namespace longspan::backend::reference
