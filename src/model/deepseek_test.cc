// What config.json says about DeepSeek's models, in both spellings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/architecture.h"

namespace longspan::model {
namespace {

using nlohmann::json;
using spec::FeedForwardKind;
using testing::HasSubstr;

// The spelling of transformers 4, with odd sizes.
json OldConfig() {
  return json::parse(R"({
    "architectures": ["DeepseekV32ForCausalLM"], "vocab_size": 320, "hidden_size": 100,
    "intermediate_size": 160, "moe_intermediate_size": 40, "num_hidden_layers": 5,
    "first_k_dense_replace": 1, "moe_layer_freq": 2, "num_attention_heads": 6,
    "num_key_value_heads": 6, "n_shared_experts": 2, "n_routed_experts": 12,
    "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5,
    "norm_topk_prob": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "q_lora_rank": 48, "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
    "v_head_dim": 20, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256,
                     "mscale": 1.0, "mscale_all_dim": 1.0},
    "index_n_heads": 4, "index_head_dim": 32, "index_topk": 64, "eos_token_id": 1})");
}

base::Result<spec::ModelSpec> SpecOf(const json& config) {
  const auto parsed = checkpoint::HubConfig::Parse(config.dump());
  if (!parsed.ok()) return parsed.status();
  return ReadModelSpec(*parsed);
}

std::string Refusal(const char* changes) {
  json config = OldConfig();
  config.update(json::parse(changes));
  return std::string(SpecOf(config).status().message());
}

TEST(DeepseekTest, ReadsTheOldSpelling) {
  const auto model = SpecOf(OldConfig());
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_TRUE(model->latent_attention.has_value());
  EXPECT_EQ(model->latent_attention->heads, 6);
  EXPECT_EQ(model->latent_attention->query_rank, 48);
  EXPECT_EQ(model->latent_attention->latent_rank, 40);
  EXPECT_EQ(model->latent_attention->nope_dim, 24);
  EXPECT_EQ(model->latent_attention->rope_dim, 16);
  EXPECT_EQ(model->latent_attention->value_dim, 20);
  ASSERT_TRUE(model->indexer.has_value());
  EXPECT_EQ(model->indexer->heads, 4);
  EXPECT_EQ(model->indexer->head_dim, 32);
  EXPECT_EQ(model->indexer->rope_dim, 16);
  EXPECT_EQ(model->indexer->top_k, 64);
  EXPECT_EQ(model->attention.rope.pairs, spec::RopePairs::kInterleaved);
  EXPECT_EQ(model->attention.rope.yarn->factor, 8);
  EXPECT_EQ(model->moe.scoring, spec::ExpertScoring::kSigmoid);
  EXPECT_TRUE(model->moe.correction_bias);
  EXPECT_EQ(model->moe.groups, 3);
  EXPECT_EQ(model->moe.groups_kept, 2);
  EXPECT_EQ(model->moe.scale, 1.5);
  EXPECT_EQ(model->moe.shared_experts, 2);
  EXPECT_THAT(
      model->feed_forward,
      testing::ElementsAre(FeedForwardKind::kDense, FeedForwardKind::kDense, FeedForwardKind::kMoe,
                           FeedForwardKind::kDense, FeedForwardKind::kMoe));
}

TEST(DeepseekTest, ReadsTheNewSpelling) {
  json config = OldConfig();
  for (const char* key : {"rope_theta", "rope_scaling", "first_k_dense_replace", "moe_layer_freq",
                          "scoring_func", "topk_method"})
    config.erase(key);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  config["mlp_layer_types"] = {"dense", "sparse", "dense", "sparse", "sparse"};
  config["layer_types"] = std::vector<std::string>(5, "deepseek_sparse_attention");
  const auto model = SpecOf(config);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->attention.rope.theta, 5000);
  EXPECT_FALSE(model->attention.rope.yarn.has_value());
  EXPECT_THAT(
      model->feed_forward,
      testing::ElementsAre(FeedForwardKind::kDense, FeedForwardKind::kMoe, FeedForwardKind::kDense,
                           FeedForwardKind::kMoe, FeedForwardKind::kMoe));
}

TEST(DeepseekTest, V3IsDenseAndMayLackTheQueriesLatent) {
  json config = OldConfig();
  config["architectures"] = {"DeepseekV3ForCausalLM"};
  config["q_lora_rank"] = nullptr;
  const auto model = SpecOf(config);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->latent_attention->query_rank, 0);
  EXPECT_FALSE(model->indexer.has_value());
}

TEST(DeepseekTest, RefusesByNameWhatItDoesNotCompute) {
  EXPECT_THAT(Refusal(R"({"q_lora_rank":null})"), HasSubstr("'q_lora_rank' is missing"));
  EXPECT_THAT(Refusal(R"({"scoring_func":"softmax"})"), HasSubstr("'scoring_func' is 'softmax'"));
  EXPECT_THAT(Refusal(R"({"topk_method":"greedy"})"), HasSubstr("'topk_method' is 'greedy'"));
  EXPECT_THAT(Refusal(R"({"attention_bias":true})"), HasSubstr("'attention_bias' is true"));
  EXPECT_THAT(Refusal(R"({"indexer_rope_interleave":true})"),
              HasSubstr("'indexer_rope_interleave' is true"));
  EXPECT_THAT(Refusal(R"({"qk_rope_head_dim":15})"), HasSubstr("must be even"));
  EXPECT_THAT(Refusal(R"({"n_group":5})"), HasSubstr("must divide the 12 experts"));
  EXPECT_THAT(Refusal(R"({"topk_group":4})"), HasSubstr("there are 3 groups"));
  EXPECT_THAT(Refusal(R"({"num_experts_per_tok":9})"), HasSubstr("have 8 experts"));
  EXPECT_THAT(Refusal(R"({"index_head_dim":8})"), HasSubstr("'index_head_dim' is 8"));
  EXPECT_THAT(Refusal(R"({"layer_types":["full_attention"]})"), HasSubstr("'full_attention'"));
  EXPECT_THAT(Refusal(R"({"mlp_layer_types":["dense"]})"), HasSubstr("1 entries for 5 layers"));
  EXPECT_THAT(Refusal(R"({"mlp_layer_types":["dense","x","x","x","x"]})"), HasSubstr("'x'"));
  EXPECT_THAT(Refusal(R"({"kv_lora_rank":null})"), HasSubstr("'kv_lora_rank' is missing"));
  EXPECT_THAT(Refusal(R"({"quantization_config":{"quant_method":"awq"}})"), HasSubstr("'awq'"));
}

}  // namespace
}  // namespace longspan::model
