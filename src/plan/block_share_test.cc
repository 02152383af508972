#include "plan/block_share.h"

#include <gmock/gmock.h>

namespace longspan::plan {
namespace {

using spec::FeedForwardKind;
using testing::HasSubstr;

// The sizes of DeepSeek-V3.
spec::ModelSpec LatentModel() {
  return {.vocab_size = 129280,
          .hidden_size = 7168,
          .intermediate_size = 18432,
          .latent_attention = spec::LatentAttentionSpec{.heads = 128,
                                                        .query_rank = 1536,
                                                        .latent_rank = 512,
                                                        .nope_dim = 128,
                                                        .rope_dim = 64,
                                                        .value_dim = 128},
          .moe = {.experts = 256,
                  .experts_per_token = 8,
                  .intermediate_size = 2048,
                  .shared_experts = 1},
          .feed_forward = {FeedForwardKind::kDense, FeedForwardKind::kMoe}};
}

// The sizes of Qwen3-235B-A22B.
spec::ModelSpec GroupedModel() {
  return {.vocab_size = 151936,
          .hidden_size = 4096,
          .intermediate_size = 12288,
          .attention = {.heads = 64, .kv_heads = 4, .head_dim = 128},
          .moe = {.experts = 128, .experts_per_token = 8, .intermediate_size = 1536},
          .feed_forward = {FeedForwardKind::kMoe}};
}

TEST(BlockShareTest, WholeBlocksAreDivided) {
  for (const int tp : {1, 2, 4, 8, 16})
    EXPECT_TRUE(CheckBlockShares(LatentModel(), {.tp = tp}, 128).ok()) << tp;
  for (const int tp : {1, 2, 4})
    EXPECT_TRUE(CheckBlockShares(GroupedModel(), {.tp = tp}, 128).ok()) << tp;
}

TEST(BlockShareTest, TheWeightWhoseBlocksAreCutIsNamed) {
  const auto latent = CheckBlockShares(LatentModel(), {.tp = 32}, 128);
  EXPECT_THAT(latent.message(), HasSubstr("--tp-size 32 leaves 64 of the 2048 rows of "
                                          "mlp.experts.*.gate_proj.weight"));
  EXPECT_THAT(latent.message(), HasSubstr("use --tp-size 16"));
  const auto grouped = CheckBlockShares(GroupedModel(), {.tp = 8}, 128);
  EXPECT_THAT(grouped.message(), HasSubstr("leaves 192 of the 1536 rows"));
  EXPECT_THAT(grouped.message(), HasSubstr("use --tp-size 4"));
}

TEST(BlockShareTest, ExpertsThatAreDividedAsAWholeKeepTheirBlocks) {
  EXPECT_TRUE(CheckBlockShares(GroupedModel(), {.tp = 8, .ep = 8}, 128).ok());
  EXPECT_TRUE(CheckBlockShares(GroupedModel(), {.tp = 8, .ep = 2}, 128).ok());
}

TEST(BlockShareTest, AMatrixOfOneBlockMayBeCut) {
  spec::ModelSpec model = GroupedModel();
  model.moe.intermediate_size = 128;
  model.attention = {.heads = 4, .kv_heads = 2, .head_dim = 32};
  EXPECT_TRUE(CheckBlockShares(model, {.tp = 2}, 128).ok());
}

}  // namespace
}  // namespace longspan::plan
