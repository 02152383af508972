#include "tests/engine/dummy_models.h"

#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace longspan::testing {

ConfigFolder::ConfigFolder(const std::string& name, const std::string& config)
    : path_(std::filesystem::temp_directory_path() /
            ("longspan_" + name + "_" + std::to_string(getpid()))) {
  std::filesystem::create_directories(path_);
  std::ofstream(path_ / "config.json") << config;
}

ConfigFolder::~ConfigFolder() { std::filesystem::remove_all(path_); }

std::string DummyDeepseek::Config() const {
  nlohmann::json config = {
      {"architectures", {top_k > 0 ? "DeepseekV32ForCausalLM" : "DeepseekV3ForCausalLM"}},
      {"vocab_size", kDummyVocab},
      {"hidden_size", 72},
      {"intermediate_size", 100},
      {"moe_intermediate_size", 36},
      {"num_hidden_layers", layers},
      {"first_k_dense_replace", dense_layers},
      {"num_attention_heads", heads},
      {"num_key_value_heads", heads},
      {"n_shared_experts", 1},
      {"n_routed_experts", 12},
      {"num_experts_per_tok", experts_per_token},
      {"n_group", 3},
      {"topk_group", groups_kept},
      {"routed_scaling_factor", 1.5},
      {"norm_topk_prob", true},
      {"scoring_func", "sigmoid"},
      {"topk_method", "noaux_tc"},
      {"q_lora_rank", nullptr},
      {"kv_lora_rank", 40},
      {"qk_nope_head_dim", 24},
      {"qk_rope_head_dim", 16},
      {"v_head_dim", 20},
      {"max_position_embeddings", 8192},
      {"rms_norm_eps", 1e-6},
      {"rope_theta", 10000.0},
      {"rope_scaling",
       {{"type", "yarn"},
        {"factor", 8.0},
        {"original_max_position_embeddings", 1024},
        {"mscale", 1.0},
        {"mscale_all_dim", 0.7}}},
  };
  if (query_rank > 0) config["q_lora_rank"] = query_rank;
  if (top_k > 0)
    config.update({{"index_n_heads", 3}, {"index_head_dim", 40}, {"index_topk", top_k}});
  return config.dump();
}

}  // namespace longspan::testing
