// The ops of this backend, and what they share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/kernel_table.h"
#include "ops/op_table.h"
#include "tensor/execution_context.h"
#include "tensor/thread_pool.h"

namespace longspan::ops {
struct WorkspaceShape;
}

namespace longspan::backend::cpu {

void Embedding(tensor::ExecutionContext& context, const ops::EmbeddingArgs& args);
void GatherRows(tensor::ExecutionContext& context, const ops::GatherRowsArgs& args);
void RmsNorm(tensor::ExecutionContext& context, const ops::RmsNormArgs& args);
void LayerNorm(tensor::ExecutionContext& context, const ops::LayerNormArgs& args);
void Add(tensor::ExecutionContext& context, const ops::AddArgs& args);
void Linear(tensor::ExecutionContext& context, const ops::LinearArgs& args);
void HeadLinear(tensor::ExecutionContext& context, const ops::HeadLinearArgs& args);
void RopeTable(tensor::ExecutionContext& context, const ops::RopeTableArgs& args);
void Rope(tensor::ExecutionContext& context, const ops::RopeArgs& args);
void CacheWrite(tensor::ExecutionContext& context, const ops::CacheWriteArgs& args);
void Attention(tensor::ExecutionContext& context, const ops::AttentionArgs& args);
void LatentAttention(tensor::ExecutionContext& context, const ops::LatentAttentionArgs& args);
void MergeAttention(tensor::ExecutionContext& context, const ops::MergeAttentionArgs& args);
void ExpandedLatentAttention(tensor::ExecutionContext& context,
                             const ops::ExpandedLatentAttentionArgs& args);
void IndexSelect(tensor::ExecutionContext& context, const ops::IndexSelectArgs& args);
void IndexCandidates(tensor::ExecutionContext& context, const ops::IndexCandidatesArgs& args);
void IndexMerge(tensor::ExecutionContext& context, const ops::IndexMergeArgs& args);
void IndexTake(tensor::ExecutionContext& context, const ops::IndexTakeArgs& args);
void SiluMul(tensor::ExecutionContext& context, const ops::SiluMulArgs& args);
void Router(tensor::ExecutionContext& context, const ops::RouterArgs& args);
void ExpertOrder(tensor::ExecutionContext& context, const ops::ExpertOrderArgs& args);
void GroupedLinear(tensor::ExecutionContext& context, const ops::GroupedLinearArgs& args);
void ExpertCombine(tensor::ExecutionContext& context, const ops::ExpertCombineArgs& args);
void Sample(tensor::ExecutionContext& context, const ops::SampleArgs& args);
void TokenLogprob(tensor::ExecutionContext& context, const ops::TokenLogprobArgs& args);
void TopLogprobs(tensor::ExecutionContext& context, const ops::TopLogprobsArgs& args);
void TopLogits(tensor::ExecutionContext& context, const ops::TopLogitsArgs& args);

// Bytes that an op takes from the workspace for steps up to `shape`.
int64_t AttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape);
int64_t LatentAttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape);
int64_t ExpandedLatentAttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape);
int64_t IndexSelectWorkspaceBytes(int threads, const ops::WorkspaceShape& shape);
int64_t RouterWorkspaceBytes(int threads, const ops::WorkspaceShape& shape);
int64_t LinearWorkspaceBytes(int threads, const ops::WorkspaceShape& shape);
int64_t SamplingWorkspaceBytes(int threads, const ops::WorkspaceShape& shape);

// The queues of this backend are thread pools.
inline tensor::ThreadPool& Pool(const tensor::ExecutionContext& context) {
  return static_cast<tensor::ThreadPool&>(context.queue);
}

inline ElementType TypeOf(const tensor::ConstView& view) {
  return view.dtype() == tensor::DType::kBf16 ? kBfloat : kFloat;
}

// Row i of the outermost dimension.
inline const char* RowAt(const tensor::ConstView& view, int64_t i) {
  return static_cast<const char*>(view.raw()) + i * view.stride(0) * tensor::SizeOf(view.dtype());
}
inline char* RowAt(const tensor::View& view, int64_t i) {
  return static_cast<char*>(view.raw()) + i * view.stride(0) * tensor::SizeOf(view.dtype());
}

// Calls body(row) or body(row, thread) for every row in [0, rows), several rows to a task so that a
// task is worth waking a thread for: `row_cost` is about the number of elements that a row touches.
template <typename Body>
void ForRows(tensor::ExecutionContext& context, int64_t rows, int64_t row_cost, const Body& body) {
  constexpr int64_t kTaskCost = 16384;
  const int64_t rows_of_task = std::max<int64_t>(1, kTaskCost / std::max<int64_t>(1, row_cost));
  const int64_t tasks = (rows + rows_of_task - 1) / rows_of_task;
  Pool(context).ParallelFor(tasks, [&](int64_t task, int thread) {
    const int64_t end = std::min(rows, (task + 1) * rows_of_task);
    for (int64_t row = task * rows_of_task; row < end; ++row) {
      if constexpr (std::is_invocable_v<Body, int64_t, int>) {
        body(row, thread);
      } else {
        body(row);
      }
    }
  });
}

}  // namespace longspan::backend::cpu
