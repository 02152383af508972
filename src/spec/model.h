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

// YaRN (Peng et al. 2023, arXiv:2309.00071): dimensions that turn less than beta_slow times over
// the original context are stretched by `factor`, those that turn more than beta_fast times kept,
// those between blended linearly. Cosines and sines are multiplied by attention_factor, or where
// that is not given by m(mscale) / m(mscale_all_dim), or by m(1) where either of them is 0, with
// m(x) = 0.1 x ln(factor) + 1.
struct YarnRopeScaling {
  double factor = 1;
  int64_t original_context_length = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 0;
  double mscale_all_dim = 0;
  std::optional<double> attention_factor;
};

struct RopeSpec {
  double theta = 10000;
  RopePairs pairs = RopePairs::kHalfSplit;
  std::optional<Llama3RopeScaling> llama3;
  std::optional<YarnRopeScaling> yarn;
};

// Grouped-query attention.
struct AttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int kv_sharers = 1;  // tensor-parallel ranks that have the same KV heads (plan/tensor_share.h)
  int head_dim = 0;
  bool qkv_bias = false;     // q, k and v projections have a bias
  bool output_bias = false;  // the output projection has one
  bool qk_norm = false;      // RMSNorm per head on q and k, before the rotation
  RopeSpec rope;
};

// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434): the cache holds one latent and
// one rope key per token, for all heads. Queries are [nope, rope] per head.
struct LatentAttentionSpec {
  int heads = 0;
  int query_rank = 0;  // of the queries' latent; 0: queries come from the hidden state itself
  int latent_rank = 0;
  int nope_dim = 0;   // of a head's query and key, without rotation
  int rope_dim = 0;   // of a head's query, and of the one key
  int value_dim = 0;  // of a head
};

// DeepSeek Sparse Attention's indexer: which positions attention reads.
struct IndexerSpec {
  int heads = 0;
  int head_dim = 0;
  int rope_dim = 0;  // the first dimensions of a head; half-split pairs
  int top_k = 0;
};

// How a router turns logits into scores.
enum class ExpertScoring : uint8_t { kSoftmax, kSigmoid };

struct MoeSpec {
  int experts = 0;
  int experts_per_token = 0;
  int intermediate_size = 0;      // of one expert
  bool normalize_weights = true;  // the chosen experts' weights sum to one, times `scale`
  ExpertScoring scoring = ExpertScoring::kSoftmax;
  bool correction_bias = false;  // added to the scores for the choice, not for the weights
  int groups = 1;                // of experts, equally large
  int groups_kept = 1;           // only their experts may be chosen
  double scale = 1;              // of the chosen experts' weights
  int shared_experts = 0;        // every token takes them: one MLP so many times an expert's size
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
  // Grouped-query attention, and the rope of all kinds of attention.
  AttentionSpec attention;
  std::optional<LatentAttentionSpec> latent_attention;  // in place of it
  std::optional<IndexerSpec> indexer;                   // makes latent attention sparse
  MoeSpec moe;                                          // meaningful where a layer is kMoe
  std::vector<FeedForwardKind> feed_forward;            // one per layer
  std::vector<int32_t> end_tokens;                      // generation stops after any of these

  int layers() const { return static_cast<int>(feed_forward.size()); }
};

}  // namespace longspan::spec
