// A folder with a config.json and nothing else: Qwen3-235B-A22B's sizes, in eight-bit blocks.
#pragma once

#include <string>

#include "tests/process/run_program.h"

namespace longspan::testing {

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

}  // namespace longspan::testing
