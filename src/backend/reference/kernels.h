// The ops of the reference backend, in the order of ops::OpTable; contracts in ops/.
#pragma once

#include "ops/op_table.h"

namespace longspan::backend::reference {

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

}  // namespace longspan::backend::reference
