// DeepSeek V3 and V3.1 (arXiv:2412.19437): latent attention, and experts behind a sigmoid router
// with groups, a correction bias and shared experts. V3.2 adds an indexer that makes attention
// sparse. The layers that predict further tokens (`num_nextn_predict_layers`) are not read.
#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/quoted.h"
#include "model/architecture.h"

namespace longspan::model {
namespace {

using checkpoint::HubConfig;

base::Status RequireString(const HubConfig& config, std::string_view key, std::string_view known) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::string value, config.String(key, known));
  if (value != known)
    return base::Unimplemented("{}is {}; {} is supported with '{}' only", config.Describe(key),
                               checkpoint::Quoted(value), config.architecture(), known);
  return base::OkStatus();
}

base::Status RequireFalse(const HubConfig& config, std::string_view key) {
  LONGSPAN_ASSIGN_OR_RETURN(const bool value, config.Bool(key, false));
  if (value)
    return base::Unimplemented("{}is true, which is not supported for {}", config.Describe(key),
                               config.architecture());
  return base::OkStatus();
}

base::Result<spec::LatentAttentionSpec> ReadLatentAttention(const HubConfig& config) {
  spec::LatentAttentionSpec latent;
  LONGSPAN_RETURN_IF_ERROR(RequireFalse(config, "attention_bias"));
  LONGSPAN_ASSIGN_OR_RETURN(latent.heads, config.Size("num_attention_heads"));
  if (config.Has("q_lora_rank")) {
    LONGSPAN_ASSIGN_OR_RETURN(latent.query_rank, config.Size("q_lora_rank"));
  }
  LONGSPAN_ASSIGN_OR_RETURN(latent.latent_rank, config.Size("kv_lora_rank"));
  LONGSPAN_ASSIGN_OR_RETURN(latent.nope_dim, config.Size("qk_nope_head_dim"));
  LONGSPAN_ASSIGN_OR_RETURN(latent.rope_dim, config.Size("qk_rope_head_dim"));
  LONGSPAN_ASSIGN_OR_RETURN(latent.value_dim, config.Size("v_head_dim"));
  if (latent.rope_dim % 2 != 0)
    return base::InvalidArgument("{}is {}; it must be even, because rotary embedding turns pairs",
                                 config.Describe("qk_rope_head_dim"), latent.rope_dim);
  return latent;
}

base::Status ReadGroups(const HubConfig& config, spec::MoeSpec& moe) {
  LONGSPAN_ASSIGN_OR_RETURN(moe.groups, config.Size("n_group"));
  LONGSPAN_ASSIGN_OR_RETURN(moe.groups_kept, config.Size("topk_group"));
  if (moe.experts % moe.groups != 0)
    return base::InvalidArgument("{}is {}, which must divide the {} experts",
                                 config.Describe("n_group"), moe.groups, moe.experts);
  if (moe.groups_kept > moe.groups)
    return base::InvalidArgument("{}is {}; there are {} groups", config.Describe("topk_group"),
                                 moe.groups_kept, moe.groups);
  const int candidates = moe.experts / moe.groups * moe.groups_kept;
  if (moe.experts_per_token > candidates)
    return base::InvalidArgument("{}is {}; the {} kept groups have {} experts",
                                 config.Describe("num_experts_per_tok"), moe.experts_per_token,
                                 moe.groups_kept, candidates);
  return base::OkStatus();
}

base::Result<spec::MoeSpec> ReadMoe(const HubConfig& config) {
  spec::MoeSpec moe = {.scoring = spec::ExpertScoring::kSigmoid, .correction_bias = true};
  LONGSPAN_RETURN_IF_ERROR(RequireString(config, "scoring_func", "sigmoid"));
  LONGSPAN_RETURN_IF_ERROR(RequireString(config, "topk_method", "noaux_tc"));
  LONGSPAN_ASSIGN_OR_RETURN(moe.experts, config.Size("n_routed_experts"));
  LONGSPAN_ASSIGN_OR_RETURN(moe.experts_per_token, config.Size("num_experts_per_tok"));
  LONGSPAN_ASSIGN_OR_RETURN(moe.intermediate_size, config.Size("moe_intermediate_size"));
  LONGSPAN_ASSIGN_OR_RETURN(moe.normalize_weights, config.Bool("norm_topk_prob", true));
  LONGSPAN_ASSIGN_OR_RETURN(moe.scale, config.Double("routed_scaling_factor"));
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t shared, config.Int("n_shared_experts", 0));
  if (shared < 0 || shared > moe.experts)
    return base::InvalidArgument("{}is {}; it must be between 0 and the {} experts",
                                 config.Describe("n_shared_experts"), shared, moe.experts);
  moe.shared_experts = static_cast<int>(shared);
  LONGSPAN_RETURN_IF_ERROR(ReadGroups(config, moe));
  return moe;
}

// transformers 5 lists the layers, older ones have a rule.
base::Status ReadFeedForward(const HubConfig& config, spec::ModelSpec& model) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto types, config.Strings("mlp_layer_types"));
  if (!types.empty()) {
    if (types.size() != model.feed_forward.size())
      return base::InvalidArgument("{}has {} entries for {} layers",
                                   config.Describe("mlp_layer_types"), types.size(),
                                   model.layers());
    for (size_t layer = 0; layer < types.size(); ++layer) {
      if (types[layer] == "sparse")
        model.feed_forward[layer] = spec::FeedForwardKind::kMoe;
      else if (types[layer] != "dense")
        return base::Unimplemented("{}has a layer of type {}; known are 'dense' and 'sparse'",
                                   config.Describe("mlp_layer_types"),
                                   checkpoint::Quoted(types[layer]));
    }
    return base::OkStatus();
  }
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t dense, config.Int("first_k_dense_replace"));
  LONGSPAN_ASSIGN_OR_RETURN(const int step, config.Size("moe_layer_freq", 1));
  for (int layer = 0; layer < model.layers(); ++layer)
    if (layer >= dense && layer % step == 0)
      model.feed_forward[layer] = spec::FeedForwardKind::kMoe;
  return base::OkStatus();
}

// `attention` is the one type that `layer_types` may list.
base::Result<spec::ModelSpec> ReadDeepseekSpec(const HubConfig& config,
                                               std::string_view attention) {
  LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec model, config.SpecWithoutHeads());
  LONGSPAN_ASSIGN_OR_RETURN(model.latent_attention, ReadLatentAttention(config));
  LONGSPAN_ASSIGN_OR_RETURN(const bool interleaved, config.Bool("rope_interleave", true));
  model.attention.rope.pairs =
      interleaved ? spec::RopePairs::kInterleaved : spec::RopePairs::kHalfSplit;
  LONGSPAN_ASSIGN_OR_RETURN(model.mlp_bias, config.Bool("mlp_bias", false));
  LONGSPAN_ASSIGN_OR_RETURN(model.moe, ReadMoe(config));
  LONGSPAN_RETURN_IF_ERROR(ReadFeedForward(config, model));
  LONGSPAN_ASSIGN_OR_RETURN(const auto types, config.Strings("layer_types"));
  for (const std::string& type : types)
    if (type != attention)
      return base::Unimplemented("{}has a layer of type {}; {} is supported with '{}' only",
                                 config.Describe("layer_types"), checkpoint::Quoted(type),
                                 config.architecture(), attention);
  return model;
}

}  // namespace

base::Result<spec::ModelSpec> ReadDeepseekV3Spec(const HubConfig& config) {
  return ReadDeepseekSpec(config, "full_attention");
}

base::Result<spec::ModelSpec> ReadDeepseekV32Spec(const HubConfig& config) {
  LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec model,
                            ReadDeepseekSpec(config, "deepseek_sparse_attention"));
  const spec::LatentAttentionSpec& latent = *model.latent_attention;
  if (latent.query_rank == 0)
    return base::InvalidArgument("{}is missing, which the indexer's queries come from",
                                 config.Describe("q_lora_rank"));
  // Its pairs are half-split while attention's are interleaved; other models of the family differ.
  LONGSPAN_RETURN_IF_ERROR(RequireFalse(config, "indexer_rope_interleave"));
  spec::IndexerSpec indexer = {.rope_dim = latent.rope_dim};
  LONGSPAN_ASSIGN_OR_RETURN(indexer.heads, config.Size("index_n_heads"));
  LONGSPAN_ASSIGN_OR_RETURN(indexer.head_dim, config.Size("index_head_dim"));
  LONGSPAN_ASSIGN_OR_RETURN(indexer.top_k, config.Size("index_topk"));
  if (indexer.head_dim < indexer.rope_dim)
    return base::InvalidArgument("{}is {}; it must be at least 'qk_rope_head_dim', which is {}",
                                 config.Describe("index_head_dim"), indexer.head_dim,
                                 indexer.rope_dim);
  model.indexer = indexer;
  return model;
}

}  // namespace longspan::model
