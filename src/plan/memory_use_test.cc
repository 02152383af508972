#include "plan/memory_use.h"

#include <gtest/gtest.h>

#include "tests/support/published_models.h"

namespace longspan::plan {
namespace {

MemoryUse Whole(const spec::ModelSpec& model, const spec::Mesh& mesh, int64_t kv_bytes) {
  Deployment deployment{.model = model, .mesh = mesh};
  deployment.precision = {.fp8_weights = true, .kv_bytes = kv_bytes};
  const LayerRange all = {0, model.layers()};
  return MemoryOfRank(deployment, std::span(&all, 1), 8192);
}

TEST(MemoryUseTest, WeightsAreThePublishedParameters) {
  // 671 and 235 billion; embedding and head in sixteen bits.
  EXPECT_NEAR(Whole(support::DeepseekV31(), {}, 2).weight_bytes, 673e9, 4e9);
  EXPECT_NEAR(Whole(support::Qwen3With235B(), {}, 2).weight_bytes, 236e9, 2e9);
}

TEST(MemoryUseTest, RanksDivideWeights) {
  const double whole = Whole(support::DeepseekV31(), {}, 2).weight_bytes;
  EXPECT_NEAR(Whole(support::DeepseekV31(), {.tp = 8}, 2).weight_bytes, whole / 8, 0.02 * whole);
  // Context-parallel ranks divide the experts alone.
  const double context = Whole(support::DeepseekV31(), {.cp = 8, .ep = 8}, 2).weight_bytes;
  EXPECT_GT(context, whole / 8 + 10e9);
  EXPECT_LT(context, whole / 8 + 20e9);
}

TEST(MemoryUseTest, TheCacheIsThePublishedSize) {
  // 576 numbers of latent and rope key, with an indexer 128 more, in 61 layers.
  EXPECT_EQ(Whole(support::DeepseekV31(), {}, 2).kv_bytes_per_token, 61 * 576 * 2);
  EXPECT_EQ(Whole(support::DeepseekV32(), {}, 1).kv_bytes_per_token, 61 * 704);
  EXPECT_EQ(Whole(support::Qwen3With235B(), {}, 2).kv_bytes_per_token, 94 * 2 * 4 * 128 * 2);
  // One of four KV heads each, and no less than one.
  EXPECT_EQ(Whole(support::Qwen3With235B(), {.tp = 4}, 2).kv_bytes_per_token, 94 * 2 * 128 * 2);
  EXPECT_EQ(Whole(support::Qwen3With235B(), {.tp = 8}, 2).kv_bytes_per_token, 94 * 2 * 128 * 2);
  EXPECT_EQ(Whole(support::DeepseekV31(), {.tp = 8}, 2).kv_bytes_per_token, 61 * 576 * 2);
}

}  // namespace
}  // namespace longspan::plan
