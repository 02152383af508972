#include "kv/kv_layout.h"

#include <gtest/gtest.h>

namespace longspan::kv {
namespace {

TEST(KvLayoutTest, GroupedAttentionKeepsKeysAndValuesOfItsKvHeads) {
  const spec::ModelSpec qwen3_235b = {.attention = {.heads = 64, .kv_heads = 4, .head_dim = 128}};
  EXPECT_EQ(94 * BytesPerTokenLayer(qwen3_235b, 2), 192'512);
}

TEST(KvLayoutTest, LatentAttentionKeepsALatentAndARopeKey) {
  spec::ModelSpec deepseek;
  deepseek.latent_attention = {.heads = 128,
                               .query_rank = 1536,
                               .latent_rank = 512,
                               .nope_dim = 128,
                               .rope_dim = 64,
                               .value_dim = 128};
  EXPECT_EQ(61 * BytesPerTokenLayer(deepseek, 2), 70'272);
  deepseek.indexer = {.heads = 64, .head_dim = 128, .rope_dim = 64, .top_k = 2048};
  EXPECT_EQ(61 * BytesPerTokenLayer(deepseek, 2), 61 * 1408);
  const auto planes = CachePlanes(deepseek);
  ASSERT_EQ(planes.size(), 3U);
  EXPECT_EQ(planes[kIndexKeyPlane].heads, 1);
  EXPECT_EQ(planes[kIndexKeyPlane].dim, 128);
}

}  // namespace
}  // namespace longspan::kv
