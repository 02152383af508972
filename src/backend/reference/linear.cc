// Products with weights: linear, head linear and grouped linear.
#include "backend/reference/linear.h"

#include <algorithm>

#include "backend/reference/kernels.h"
#include "backend/reference/packed_matrix.h"
#include "backend/reference/thread_scratch.h"
#include "backend/reference/wide_sums.h"

namespace longspan::backend::reference {
namespace {

// Rows of x that share one pass over the weights, and features of a task.
constexpr int64_t kBlockRows = 16;
constexpr int64_t kBlockFeatures = 64;

int64_t Blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }

struct Range {
  int64_t begin;
  int64_t end;
};

Range Block(int64_t index, int64_t size, int64_t count) {
  return {index * size, std::min(count, (index + 1) * size)};
}

// Rows a stride apart.
template <typename T>
struct Rows {
  T* first;
  int64_t stride;

  T* row(int64_t i) const { return first + i * stride; }
};

struct Product {
  Rows<const float> x;
  const int32_t* source_rows;  // the row of x for every row of out; null: the same row
  const PackedMatrix& weight;
  const float* bias;  // or null
  Rows<float> out;
};

// Of a matrix, or of one head of [rows, heads, dim].
Rows<const float> RowsOf(const tensor::ConstView& view, int64_t head = 0) {
  return {view.data<float>() + head * view.stride(1), view.stride(0)};
}
Rows<float> RowsOf(const tensor::View& view, int64_t head = 0) {
  return {view.data<float>() + head * view.stride(1), view.stride(0)};
}

// At most kBlockRows rows of out, some of their features. Every element is one Dot, whatever the
// block.
void Multiply(const Product& product, Range rows, Range features, double* scratch) {
  const int64_t columns = product.weight.columns();
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t source = product.source_rows == nullptr ? row : product.source_rows[row];
    std::copy_n(product.x.row(source), columns, scratch + (row - rows.begin) * columns);
  }
  for (int64_t feature = features.begin; feature < features.end; ++feature) {
    const float* weight = product.weight.row(feature);
    const double bias = product.bias == nullptr ? 0 : product.bias[feature];
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const double sum = Dot(scratch + (row - rows.begin) * columns, weight, columns);
      product.out.row(row)[feature] = static_cast<float>(sum + bias);
    }
  }
}

}  // namespace

int64_t LinearScratchDoubles(int64_t columns) { return kBlockRows * columns; }

void Linear(tensor::ExecutionContext& context, const ops::LinearArgs& args) {
  const PackedMatrix& weight = PackedMatrix::From(args.weight);
  const Product product = {RowsOf(args.x), nullptr, weight,
                           args.bias.empty() ? nullptr : args.bias.data<float>(), RowsOf(args.out)};
  const int64_t rows = args.x.size(0);
  const int64_t row_blocks = Blocks(rows, kBlockRows);
  const int64_t feature_blocks = Blocks(weight.rows(), kBlockFeatures);
  const ThreadScratch scratch(context, LinearScratchDoubles(weight.columns()));
  Threads(context).ParallelFor(row_blocks * feature_blocks, [&](int64_t task, int thread) {
    Multiply(product, Block(task / feature_blocks, kBlockRows, rows),
             Block(task % feature_blocks, kBlockFeatures, weight.rows()), scratch.of(thread));
  });
}

void HeadLinear(tensor::ExecutionContext& context, const ops::HeadLinearArgs& args) {
  const int64_t rows = args.x.size(0);
  const int64_t heads = args.x.size(1);
  const int64_t features = args.out.size(2);
  const int64_t row_blocks = Blocks(rows, kBlockRows);
  const ThreadScratch scratch(context, LinearScratchDoubles(args.x.size(2)));
  Threads(context).ParallelFor(row_blocks * heads, [&](int64_t task, int thread) {
    const int64_t head = task % heads;
    const Product product = {RowsOf(args.x, head), nullptr, PackedMatrix::From(args.weights[head]),
                             nullptr, RowsOf(args.out, head)};
    Multiply(product, Block(task / heads, kBlockRows, rows), {0, features}, scratch.of(thread));
  });
}

void GroupedLinear(tensor::ExecutionContext& context, const ops::GroupedLinearArgs& args) {
  const auto experts = static_cast<int64_t>(args.weights.size());
  const int64_t features = args.out.size(1);
  const int64_t feature_blocks = Blocks(features, kBlockFeatures);
  const auto* begin = args.expert_begin.data<int32_t>();
  const auto* source_rows = args.source_rows.empty() ? nullptr : args.source_rows.data<int32_t>();
  const ThreadScratch scratch(context, LinearScratchDoubles(args.x.size(1)));
  Threads(context).ParallelFor(experts * feature_blocks, [&](int64_t task, int thread) {
    const int64_t expert = task / feature_blocks;
    const Product product = {RowsOf(args.x), source_rows, PackedMatrix::From(args.weights[expert]),
                             nullptr, RowsOf(args.out)};
    for (int64_t row = begin[expert]; row < begin[expert + 1]; row += kBlockRows) {
      Multiply(product, {row, std::min<int64_t>(begin[expert + 1], row + kBlockRows)},
               Block(task % feature_blocks, kBlockFeatures, features), scratch.of(thread));
    }
  });
}

}  // namespace longspan::backend::reference
