#include "plan/model_work.h"

#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

// DeepSeek-V3.2 by its published figures: 671 billion parameters, 37 billion of them per token.
spec::ModelSpec DeepseekV32() {
  spec::ModelSpec model = {.vocab_size = 129280, .hidden_size = 7168, .intermediate_size = 18432};
  model.latent_attention = {.heads = 128,
                            .query_rank = 1536,
                            .latent_rank = 512,
                            .nope_dim = 128,
                            .rope_dim = 64,
                            .value_dim = 128};
  model.moe = {
      .experts = 256, .experts_per_token = 8, .intermediate_size = 2048, .shared_experts = 1};
  return model;
}

double Billions(const spec::ModelSpec& model, double experts) {
  const double layers = 61.0 * static_cast<double>(AttentionParameters(model)) +
                        3.0 * static_cast<double>(MlpParameters(model)) +
                        58 * MoeParameters(model, experts);
  return (layers + 2.0 * model.vocab_size * model.hidden_size) / 1e9;
}

TEST(ModelWorkTest, CountsDeepseeksPublishedParameters) {
  const spec::ModelSpec model = DeepseekV32();
  EXPECT_NEAR(Billions(model, 256), 671, 0.1);
  EXPECT_NEAR(Billions(model, 8), 37.5, 0.1);
}

TEST(ModelWorkTest, AnIndexerBoundsAttentionAndHasItsOwnProducts) {
  spec::ModelSpec model = DeepseekV32();
  EXPECT_EQ(AttendedPositions(model, 1e6), 1e6);
  EXPECT_EQ(IndexProducts(model), 0);
  EXPECT_EQ(AttentionProducts(model), 128 * 320);
  const int64_t dense = AttentionParameters(model);
  model.indexer = {.heads = 64, .head_dim = 128, .rope_dim = 64, .top_k = 2048};
  EXPECT_EQ(AttendedPositions(model, 1e6), 2048);
  EXPECT_EQ(AttendedPositions(model, 100), 100);
  EXPECT_EQ(IndexProducts(model), 8192);
  EXPECT_EQ(AttentionParameters(model) - dense, 1536 * 8192 + 7168 * (128 + 64));
}

// At DeepSeek's sizes a position is worth expanding for about 171 rows.
TEST(ModelWorkTest, ExpandsForManyRowsAndAbsorbsForFew) {
  const spec::LatentAttentionSpec latent = *DeepseekV32().latent_attention;
  EXPECT_TRUE(ExpandedIsCheaper(latent, 0, 1));
  EXPECT_TRUE(ExpandedIsCheaper(latent, 0, 100));
  EXPECT_FALSE(ExpandedIsCheaper(latent, 1'000'000, 1));
  EXPECT_FALSE(ExpandedIsCheaper(latent, 1'000'000, 170));
  EXPECT_TRUE(ExpandedIsCheaper(latent, 1'000'000, 172));
  EXPECT_TRUE(ExpandedIsCheaper(latent, 4'000'000'000, 512));
}

TEST(ModelWorkTest, NeverExpandsWhereHeadsAreWiderThanTwoLatents) {
  spec::LatentAttentionSpec latent = *DeepseekV32().latent_attention;
  latent.latent_rank = 100;
  EXPECT_FALSE(ExpandedIsCheaper(latent, 0, 512));
}

}  // namespace
}  // namespace longspan::plan
