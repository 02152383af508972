// The ops of the CUDA backend; contracts in ops/. They queue kernels on the context's stream,
// neither allocate nor wait, and may be captured into a graph.
#pragma once

#include "ops/backend.h"
#include "ops/op_table.h"

namespace longspan::backend::cuda {

using tensor::ExecutionContext;

// Rows.
void Embedding(ExecutionContext& context, const ops::EmbeddingArgs& args);
void GatherRows(ExecutionContext& context, const ops::GatherRowsArgs& args);
void RmsNorm(ExecutionContext& context, const ops::RmsNormArgs& args);
void LayerNorm(ExecutionContext& context, const ops::LayerNormArgs& args);
void Add(ExecutionContext& context, const ops::AddArgs& args);
void RopeTable(ExecutionContext& context, const ops::RopeTableArgs& args);
void Rope(ExecutionContext& context, const ops::RopeArgs& args);
void SiluMul(ExecutionContext& context, const ops::SiluMulArgs& args);

// Products and experts.
void Linear(ExecutionContext& context, const ops::LinearArgs& args);
void HeadLinear(ExecutionContext& context, const ops::HeadLinearArgs& args);
void Router(ExecutionContext& context, const ops::RouterArgs& args);
void ExpertOrder(ExecutionContext& context, const ops::ExpertOrderArgs& args);
void GroupedLinear(ExecutionContext& context, const ops::GroupedLinearArgs& args);
void ExpertCombine(ExecutionContext& context, const ops::ExpertCombineArgs& args);

// Attention and its cache.
void CacheWrite(ExecutionContext& context, const ops::CacheWriteArgs& args);
void Attention(ExecutionContext& context, const ops::AttentionArgs& args);
void LatentAttention(ExecutionContext& context, const ops::LatentAttentionArgs& args);
void ExpandedLatentAttention(ExecutionContext& context,
                             const ops::ExpandedLatentAttentionArgs& args);
void MergeAttention(ExecutionContext& context, const ops::MergeAttentionArgs& args);
void IndexSelect(ExecutionContext& context, const ops::IndexSelectArgs& args);

// From logits to tokens.
void Sample(ExecutionContext& context, const ops::SampleArgs& args);
void TokenLogprob(ExecutionContext& context, const ops::TokenLogprobArgs& args);
void TopLogprobs(ExecutionContext& context, const ops::TopLogprobsArgs& args);
void TopLogits(ExecutionContext& context, const ops::TopLogitsArgs& args);

// Workspace that each takes at most for steps up to the shape, on a GPU with so many
// multiprocessors. Ops that are not listed take none.
int64_t AttentionWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape);
int64_t LatentAttentionWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape);
int64_t ExpandedLatentAttentionWorkspaceBytes(int multiprocessors,
                                              const ops::WorkspaceShape& shape);
int64_t IndexSelectWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape);
int64_t ProductWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape);
int64_t ExpertWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape);
int64_t SamplingWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape);

}  // namespace longspan::backend::cuda
