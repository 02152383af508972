// What a model is, as plain values: everything that planning, memory sizing and building need to
// know, and nothing about where its weights lie. Read from config.json by checkpoint/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longspan::spec {

// Which two coordinates of a head form a rotary pair.
enum class RopePairs : uint8_t {
  kHalfSplit,    // (i, i + dim / 2): Llama, Qwen
  kInterleaved,  // (2i, 2i + 1)
};

// Llama 3.1's frequency scaling: long wavelengths are stretched by `factor`, short ones kept, those
// between blended linearly.
struct Llama3RopeScaling {
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_context_length = 8192;
};

struct RopeSpec {
  double theta = 10000;
  RopePairs pairs = RopePairs::kHalfSplit;
  std::optional<Llama3RopeScaling> llama3;
};

// Grouped-query attention.
struct AttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool qkv_bias = false;     // q, k and v projections have a bias
  bool output_bias = false;  // the output projection has one
  bool qk_norm = false;      // RMSNorm per head on q and k, before the rotation
  RopeSpec rope;
};

struct MoeSpec {
  int experts = 0;
  int experts_per_token = 0;
  int intermediate_size = 0;      // of one expert
  bool normalize_weights = true;  // the chosen experts' weights sum to one
};

enum class FeedForwardKind : uint8_t { kDense, kMoe };

struct ModelSpec {
  std::string architecture;  // the name in config.json, for example "Qwen3MoeForCausalLM"
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;  // of a dense feed-forward layer
  bool mlp_bias = false;
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;  // the head uses the embedding's matrix
  int64_t context_length = 0;    // tokens
  AttentionSpec attention;
  MoeSpec moe;                                // meaningful where a layer is kMoe
  std::vector<FeedForwardKind> feed_forward;  // one per layer
  std::vector<int32_t> end_tokens;            // generation stops after any of these

  int layers() const { return static_cast<int>(feed_forward.size()); }
};

}  // namespace longspan::spec
