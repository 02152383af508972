// The closed list of ops and how a backend offers them.
#pragma once

#include <string_view>
#include <vector>

#include "ops/add.h"
#include "ops/attention.h"
#include "ops/cache_write.h"
#include "ops/divided_index_select.h"
#include "ops/embedding.h"
#include "ops/expanded_latent_attention.h"
#include "ops/experts.h"
#include "ops/gather_rows.h"
#include "ops/head_linear.h"
#include "ops/index_select.h"
#include "ops/latent_attention.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/merge_attention.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/sample.h"
#include "ops/silu_mul.h"

namespace longspan::ops {

// A null entry is an op that the backend lacks; a model that needs it is refused when it is loaded.
// Ops never allocate (scratch comes from the context's workspace) and never fail: their arguments
// are checked before, and what a device reports comes out of Queue::Synchronize().
struct OpTable {
  EmbeddingOp embedding = nullptr;
  GatherRowsOp gather_rows = nullptr;
  RmsNormOp rms_norm = nullptr;
  LayerNormOp layer_norm = nullptr;
  AddOp add = nullptr;
  LinearOp linear = nullptr;
  HeadLinearOp head_linear = nullptr;
  RopeTableOp rope_table = nullptr;
  RopeOp rope = nullptr;
  CacheWriteOp cache_write = nullptr;
  AttentionOp attention = nullptr;
  LatentAttentionOp latent_attention = nullptr;
  MergeAttentionOp merge_attention = nullptr;
  ExpandedLatentAttentionOp expanded_latent_attention = nullptr;
  IndexSelectOp index_select = nullptr;
  IndexCandidatesOp index_candidates = nullptr;
  IndexMergeOp index_merge = nullptr;
  IndexTakeOp index_take = nullptr;
  SiluMulOp silu_mul = nullptr;
  RouterOp router = nullptr;
  ExpertOrderOp expert_order = nullptr;
  GroupedLinearOp grouped_linear = nullptr;
  ExpertCombineOp expert_combine = nullptr;
  SampleOp sample = nullptr;
  TokenLogprobOp token_logprob = nullptr;
  TopLogprobsOp top_logprobs = nullptr;
  TopLogitsOp top_logits = nullptr;
};

// An op that a model needs, by its member and its name.
enum class OpKind {
  kEmbedding,
  kGatherRows,
  kRmsNorm,
  kLayerNorm,
  kAdd,
  kLinear,
  kHeadLinear,
  kRopeTable,
  kRope,
  kCacheWrite,
  kAttention,
  kLatentAttention,
  kMergeAttention,
  kExpandedLatentAttention,
  kIndexSelect,
  kIndexCandidates,
  kIndexMerge,
  kIndexTake,
  kSiluMul,
  kRouter,
  kExpertOrder,
  kGroupedLinear,
  kExpertCombine,
  kSample,
  kTokenLogprob,
  kTopLogprobs,
  kTopLogits,
};

// The names of those of `needed` that the table lacks, in order.
std::vector<std::string_view> MissingOps(const OpTable& table, const std::vector<OpKind>& needed);

}  // namespace longspan::ops
