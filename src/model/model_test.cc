// Architectures from their configurations, and rotary frequencies.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/architecture.h"
#include "model/parameters.h"
#include "model/rope_frequencies.h"

namespace longspan::model {
namespace {

using spec::FeedForwardKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A small configuration with the given members besides.
base::Result<spec::ModelSpec> Read(const std::string& architecture, const std::string& more = "") {
  const std::string json = R"({"architectures": [")" + architecture + R"("], "vocab_size": 64,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0)" +
                           (more.empty() ? "" : ", " + more) + "}";
  LONGSPAN_ASSIGN_OR_RETURN(const auto config, checkpoint::HubConfig::Parse(json));
  return ReadModelSpec(config);
}

TEST(ArchitectureTest, LlamaTakesItsBiasesFromTheConfiguration) {
  const auto plain = Read("LlamaForCausalLM").value();
  EXPECT_FALSE(plain.attention.qkv_bias || plain.attention.output_bias || plain.mlp_bias);
  const auto biased =
      Read("LlamaForCausalLM", R"("attention_bias": true, "mlp_bias": true)").value();
  EXPECT_TRUE(biased.attention.qkv_bias && biased.attention.output_bias && biased.mlp_bias);
}

TEST(ArchitectureTest, QwenFamiliesDifferInBiasAndNorm) {
  const auto qwen2 = Read("Qwen2ForCausalLM").value();
  EXPECT_TRUE(qwen2.attention.qkv_bias);
  EXPECT_FALSE(qwen2.attention.output_bias || qwen2.attention.qk_norm);
  const auto qwen3 = Read("Qwen3ForCausalLM").value();
  EXPECT_TRUE(qwen3.attention.qk_norm);
  EXPECT_FALSE(qwen3.attention.qkv_bias);
}

TEST(ArchitectureTest, ASlidingWindowIsRefused) {
  EXPECT_TRUE(Read("MistralForCausalLM", R"("sliding_window": null)").ok());
  EXPECT_THAT(Read("MistralForCausalLM", R"("sliding_window": 4096)").status().message(),
              HasSubstr("sliding_window"));
  EXPECT_TRUE(
      Read("Qwen2ForCausalLM", R"("sliding_window": 4096, "use_sliding_window": false)").ok());
  EXPECT_FALSE(
      Read("Qwen2ForCausalLM", R"("sliding_window": 4096, "use_sliding_window": true)").ok());
}

TEST(ArchitectureTest, MoeLayersAreThoseThatTheConfigurationLeaves) {
  const std::string experts =
      R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16)";
  constexpr auto kDense = FeedForwardKind::kDense;
  constexpr auto kMoe = FeedForwardKind::kMoe;
  EXPECT_THAT(Read("Qwen3MoeForCausalLM", experts).value().feed_forward,
              ElementsAre(kMoe, kMoe, kMoe, kMoe, kMoe, kMoe));
  // Every second layer from the second on, but not layer 3.
  const auto model =
      Read("Qwen3MoeForCausalLM", experts + R"(, "decoder_sparse_step": 2, "mlp_only_layers": [3])")
          .value();
  EXPECT_THAT(model.feed_forward, ElementsAre(kDense, kMoe, kDense, kDense, kDense, kMoe));
  EXPECT_FALSE(model.moe.normalize_weights);
  EXPECT_EQ(Read("Qwen3MoeForCausalLM",
                 R"("num_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 16)")
                .status()
                .code(),
            base::StatusCode::kInvalidArgument);
}

TEST(ArchitectureTest, AnUnknownOneIsRefusedWithTheOnesThereAre) {
  const auto status = Read("GemmaForCausalLM").status();
  EXPECT_THAT(status.message(), HasSubstr("'GemmaForCausalLM'"));
  EXPECT_THAT(status.message(), HasSubstr("LlamaForCausalLM"));
}

TEST(ParametersTest, CountsEveryMatrix) {
  // Per layer: q and o 32 x 32 each, k and v 32 x 16 each, an MLP of 3 x 32 x 48; embedding and
  // head.
  const int64_t layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48;
  EXPECT_EQ(Parameters(Read("LlamaForCausalLM").value()), 6 * layer + 2 * 64 * 32);
  const auto moe =
      Read("Qwen3MoeForCausalLM",
           R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16)")
          .value();
  EXPECT_EQ(Parameters(moe) - Parameters(Read("LlamaForCausalLM").value()),
            6 * (32 * 8 + 8 * 3 * 32 * 16 - 3 * 32 * 48));
}

TEST(ParametersTest, RanksThatDivideTokensHoldAllButDividedExperts) {
  const auto moe =
      Read("Qwen3MoeForCausalLM",
           R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16)")
          .value();
  const int64_t experts = int64_t{6} * 8 * (32 + 3 * 32 * 16);
  const int64_t others = Parameters(moe) - experts;
  EXPECT_EQ(ParametersOfRanks(moe, {.pp = 2, .tp = 2, .ep = 2}), Parameters(moe));
  EXPECT_EQ(ParametersOfRanks(moe, {.cp = 4}), 4 * Parameters(moe));
  EXPECT_EQ(ParametersOfRanks(moe, {.cp = 4, .ep = 2}), 4 * others + 2 * experts);
  EXPECT_EQ(ParametersOfRanks(moe, {.cp = 2, .tp = 2, .ep = 4}), 2 * others + experts);
}

TEST(RopeFrequenciesTest, FallGeometrically) {
  const auto frequencies = RopeInverseFrequencies({.theta = 10000}, 64);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_FLOAT_EQ(frequencies[10], 0.0562341325f);
  EXPECT_FLOAT_EQ(frequencies[16], 0.01f);
}

// Llama 3.1's values: long wavelengths divided by the factor, short ones kept, those between
// blended.
TEST(RopeFrequenciesTest, Llama3ScalesLongWavelengthsOnly) {
  const spec::RopeSpec rope = {.theta = 500000, .llama3 = spec::Llama3RopeScaling{}};
  const auto plain = RopeInverseFrequencies({.theta = 500000}, 128);
  const auto scaled = RopeInverseFrequencies(rope, 128);
  constexpr double kTwoPi = 6.283185307179586;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = kTwoPi / plain[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]) << i;
    } else if (wavelength > 8192.0) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8) << i;
    } else {
      EXPECT_LT(scaled[i], plain[i]) << i;
      EXPECT_GT(scaled[i], plain[i] / 8) << i;
    }
  }
}

}  // namespace
}  // namespace longspan::model
