// Folders with a config.json and nothing else: sizes of published models, in eight-bit blocks.
#pragma once

#include <string>

#include "tests/process/run_program.h"

namespace longspan::testing {

// Qwen3-235B-A22B.
inline std::string WriteEightBitModel(const TemporaryFolder& folder) {
  folder.Write("config.json", R"({
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
    "norm_topk_prob": true, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "vocab_size": 151936,
    "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 128, "num_experts_per_tok": 8, "max_position_embeddings": 262144,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "weight_block_size": [128, 128]}})");
  return folder.path().string();
}

// DeepSeek-V3.1.
inline std::string WriteEightBitLatentModel(const TemporaryFolder& folder) {
  folder.Write("config.json", R"({
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_act": "silu",
    "norm_topk_prob": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": false,
    "attention_bias": false, "moe_layer_freq": 1, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280, "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "first_k_dense_replace": 3, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
    "max_position_embeddings": 163840,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "weight_block_size": [128, 128]}})");
  return folder.path().string();
}

}  // namespace longspan::testing
