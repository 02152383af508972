// Shapes of published models, as their config.json says them: sizes only.
#pragma once

#include <algorithm>
#include <vector>

#include "spec/model.h"

namespace longspan::support {

inline spec::ModelSpec DeepseekV31() {
  spec::ModelSpec model;
  model.architecture = "DeepseekV3ForCausalLM";
  model.vocab_size = 129280;
  model.hidden_size = 7168;
  model.intermediate_size = 18432;
  model.context_length = 163840;
  model.latent_attention = spec::LatentAttentionSpec{.heads = 128,
                                                     .query_rank = 1536,
                                                     .latent_rank = 512,
                                                     .nope_dim = 128,
                                                     .rope_dim = 64,
                                                     .value_dim = 128};
  model.moe = {.experts = 256,
               .experts_per_token = 8,
               .intermediate_size = 2048,
               .groups = 8,
               .groups_kept = 4,
               .shared_experts = 1};
  model.feed_forward.assign(61, spec::FeedForwardKind::kMoe);
  std::fill_n(model.feed_forward.begin(), 3, spec::FeedForwardKind::kDense);
  return model;
}

inline spec::ModelSpec DeepseekV32() {
  spec::ModelSpec model = DeepseekV31();
  model.architecture = "DeepseekV32ForCausalLM";
  model.indexer = spec::IndexerSpec{.heads = 64, .head_dim = 128, .rope_dim = 64, .top_k = 2048};
  return model;
}

inline spec::ModelSpec Qwen3With235B() {
  spec::ModelSpec model;
  model.architecture = "Qwen3MoeForCausalLM";
  model.vocab_size = 151936;
  model.hidden_size = 4096;
  model.intermediate_size = 12288;
  model.context_length = 1 << 20;
  model.attention = {.heads = 64, .kv_heads = 4, .head_dim = 128, .qk_norm = true};
  model.moe = {.experts = 128, .experts_per_token = 8, .intermediate_size = 1536};
  model.feed_forward.assign(94, spec::FeedForwardKind::kMoe);
  return model;
}

}  // namespace longspan::support
