// Qwen3-MoE: Qwen3's attention; feed-forward layers are mixtures of experts except those that the
// configuration names (`mlp_only_layers`) or skips (`decoder_sparse_step`).
#include <algorithm>

#include "model/architecture.h"

namespace longspan::model {

base::Result<spec::ModelSpec> ReadQwen3MoeSpec(const checkpoint::HubConfig& config) {
  LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec model, ReadQwen3Spec(config));
  LONGSPAN_ASSIGN_OR_RETURN(model.moe.experts, config.Size("num_experts"));
  LONGSPAN_ASSIGN_OR_RETURN(model.moe.experts_per_token, config.Size("num_experts_per_tok"));
  LONGSPAN_ASSIGN_OR_RETURN(model.moe.intermediate_size, config.Size("moe_intermediate_size"));
  LONGSPAN_ASSIGN_OR_RETURN(model.moe.normalize_weights, config.Bool("norm_topk_prob", false));
  LONGSPAN_ASSIGN_OR_RETURN(const int step, config.Size("decoder_sparse_step", 1));
  LONGSPAN_ASSIGN_OR_RETURN(const auto dense, config.Ints("mlp_only_layers"));
  if (model.moe.experts_per_token > model.moe.experts)
    return base::InvalidArgument("{}must be at most 'num_experts' {}, it is {}",
                                 config.Describe("num_experts_per_tok"), model.moe.experts,
                                 model.moe.experts_per_token);
  for (int layer = 0; layer < model.layers(); ++layer) {
    const bool only_mlp = std::find(dense.begin(), dense.end(), layer) != dense.end();
    if (!only_mlp && (layer + 1) % step == 0)
      model.feed_forward[layer] = spec::FeedForwardKind::kMoe;
  }
  return model;
}

}  // namespace longspan::model
