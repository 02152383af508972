// Products with packed weights, whole and grouped by expert.
#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/packed.h"
#include "ops/backend.h"
#include "tensor/workspace.h"

namespace longspan::backend::cpu {
namespace {

using tensor::ConstView;
using tensor::DType;

// Rows of a task: their slice of x (kStepsPerPass words each) stays in the second-level cache while
// they meet panel after panel. A multiple of the register tile.
constexpr int64_t kMaxTaskRows = 264;
// Multiply-adds of vectors' words below which a task is not worth taking.
constexpr int64_t kMinTaskWords = 65536;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

const CpuPackedWeight& Packed(const ops::PackedWeight& weight) {
  return static_cast<const CpuPackedWeight&>(weight);
}

// How the product of some rows with one matrix is cut into tasks: task = row block * panel groups +
// panel group, so that successive tasks share their rows of x.
struct TaskGrid {
  int64_t rows = 0;
  int64_t block_rows = 0;
  int64_t panels = 0;
  int64_t group_panels = 0;

  int64_t groups() const { return DivideUp(panels, group_panels); }
  int64_t MostPanels(int64_t threads) const {  // of a thread, by one block of rows
    return DivideUp(groups(), threads) * group_panels;
  }
  int64_t tasks() const { return rows == 0 ? 0 : DivideUp(rows, block_rows) * groups(); }

  // Of a few tasks, as many for one thread as for another, where no thread gets more panels by it.
  void Balance(int64_t threads) {
    if (tasks() != groups() || groups() <= threads || groups() >= 4 * threads) return;
    TaskGrid even = *this;
    even.group_panels = DivideUp(panels, groups() / threads * threads);
    if (even.MostPanels(threads) <= MostPanels(threads)) *this = even;
  }
};

TaskGrid CutProduct(int64_t rows, const CpuPackedWeight& weight, int64_t wanted_tasks) {
  TaskGrid grid{.rows = rows, .panels = weight.panels()};
  if (rows == 0) return {.panels = grid.panels, .group_panels = grid.panels};
  const int64_t panel_words = rows * weight.steps() * kPanelColumns;
  grid.group_panels =
      std::clamp<int64_t>(kMinTaskWords / std::max<int64_t>(panel_words, 1), 1, grid.panels);
  const int64_t blocks = std::max(DivideUp(rows, kMaxTaskRows),
                                  std::min(DivideUp(wanted_tasks, grid.groups()), rows / 24));
  grid.block_rows = DivideUp(DivideUp(rows, std::max<int64_t>(blocks, 1)), 12) * 12;
  return grid;
}

// A product that tasks are taken from.
struct Product {
  ConstView x;
  int64_t x_offset = 0;                  // bytes from a row to what is multiplied of it
  const int32_t* source_rows = nullptr;  // of out's rows
  ConstView bias;
  tensor::View out;
  int64_t out_offset = 0;
  tensor::View partial_sums;  // f32 [threads, kMaxTaskRows, kPanelColumns]
  const KernelTable* kernels = nullptr;
};

// The task of the rows of out from `first_row` on.
void RunTask(const Product& product, const CpuPackedWeight& weight, const TaskGrid& grid,
             int64_t first_row, int64_t task, int thread) {
  const int64_t row = task / grid.groups() * grid.block_rows;
  ProductBlock block;
  block.x = static_cast<const char*>(product.x.raw()) + product.x_offset;
  block.x_stride = product.x.stride(0) * tensor::SizeOf(product.x.dtype());
  if (product.source_rows != nullptr) {
    block.source_rows = product.source_rows + first_row + row;
  } else {
    block.x += (first_row + row) * block.x_stride;
  }
  block.rows = std::min(grid.block_rows, grid.rows - row);
  block.columns = weight.columns();
  block.out_stride = product.out.stride(0);
  block.out_type = TypeOf(product.out);
  block.partial_sums = product.partial_sums.data<float>() + thread * kMaxTaskRows * kPanelColumns;
  char* out = RowAt(product.out, first_row + row) + product.out_offset;
  const int64_t first_panel = task % grid.groups() * grid.group_panels;
  const int64_t end_panel = std::min(grid.panels, first_panel + grid.group_panels);
  for (int64_t panel = first_panel; panel < end_panel; ++panel) {
    const int64_t column = panel * kPanelColumns;
    block.panel = weight.panel(panel);
    block.panel_columns = std::min(kPanelColumns, weight.rows() - column);
    block.bias = product.bias.empty() ? nullptr : product.bias.data<float>() + column;
    block.out = out + column * tensor::SizeOf(product.out.dtype());
    product.kernels->product[TypeOf(product.x)](block);
  }
}

tensor::View TakePartialSums(tensor::Workspace::Scope& scope, int threads) {
  return scope.Take(DType::kF32, {threads, kMaxTaskRows, kPanelColumns});
}

}  // namespace

int64_t LinearWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  return tensor::Workspace::PaddedBytes(threads * kMaxTaskRows * kPanelColumns * 4) +
         tensor::Workspace::PaddedBytes((shape.experts + 1) * 8);
}

void Linear(tensor::ExecutionContext& context, const ops::LinearArgs& args) {
  const CpuPackedWeight& weight = Packed(*args.weight);
  LONGSPAN_CHECK(weight.compute() == args.x.dtype(), "linear: x is {}, the weight is for {}",
                 DTypeName(args.x.dtype()), DTypeName(weight.compute()));
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const Product product{.x = args.x,
                        .bias = args.bias,
                        .out = args.out,
                        .partial_sums = TakePartialSums(scope, pool.threads()),
                        .kernels = &ActiveKernels()};
  TaskGrid grid = CutProduct(args.x.size(0), weight, int64_t{4} * pool.threads());
  grid.Balance(pool.threads());
  pool.ParallelFor(grid.tasks(), [&](int64_t task, int thread) {
    RunTask(product, weight, grid, 0, task, thread);
  });
}

void HeadLinear(tensor::ExecutionContext& context, const ops::HeadLinearArgs& args) {
  const auto heads = static_cast<int64_t>(args.weights.size());
  if (heads == 0) return;
  for (const ops::PackedWeight* weight : args.weights)
    LONGSPAN_CHECK(Packed(*weight).compute() == args.x.dtype(), "head_linear: x is {}",
                   DTypeName(args.x.dtype()));
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const Product common{.x = args.x,
                       .out = args.out,
                       .partial_sums = TakePartialSums(scope, pool.threads()),
                       .kernels = &ActiveKernels()};
  const TaskGrid grid = CutProduct(args.x.size(0), Packed(*args.weights[0]),
                                   DivideUp(int64_t{4} * pool.threads(), heads));
  pool.ParallelFor(heads * grid.tasks(), [&](int64_t task, int thread) {
    const int64_t head = task / grid.tasks();
    Product product = common;
    product.x_offset = head * args.x.stride(1) * tensor::SizeOf(args.x.dtype());
    product.out_offset = head * args.out.stride(1) * tensor::SizeOf(args.out.dtype());
    RunTask(product, Packed(*args.weights[head]), grid, 0, task % grid.tasks(), thread);
  });
}

void GroupedLinear(tensor::ExecutionContext& context, const ops::GroupedLinearArgs& args) {
  const auto experts = static_cast<int64_t>(args.weights.size());
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  Product product{.x = args.x,
                  .out = args.out,
                  .partial_sums = TakePartialSums(scope, pool.threads()),
                  .kernels = &ActiveKernels()};
  if (!args.source_rows.empty()) product.source_rows = args.source_rows.data<int32_t>();

  // The experts' tasks behind each other: uneven loads are evened out by taking one at a time.
  const auto* begin = args.expert_begin.data<int32_t>();
  auto* task_begin = scope.Take(DType::kI64, {experts + 1}).data<int64_t>();
  const int64_t wanted = DivideUp(int64_t{4} * pool.threads(), experts);
  const auto grid_of = [&](int64_t expert) {
    return CutProduct(begin[expert + 1] - begin[expert], Packed(*args.weights[expert]), wanted);
  };
  task_begin[0] = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    LONGSPAN_CHECK(Packed(*args.weights[expert]).compute() == args.x.dtype(),
                   "grouped_linear: x is {}", DTypeName(args.x.dtype()));
    task_begin[expert + 1] = task_begin[expert] + grid_of(expert).tasks();
  }
  pool.ParallelFor(task_begin[experts], [&](int64_t task, int thread) {
    const int64_t expert =
        std::upper_bound(task_begin, task_begin + experts + 1, task) - task_begin - 1;
    RunTask(product, Packed(*args.weights[expert]), grid_of(expert), begin[expert],
            task - task_begin[expert], thread);
  });
}

}  // namespace longspan::backend::cpu
