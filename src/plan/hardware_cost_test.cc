#include "plan/hardware_cost.h"

#include <gtest/gtest.h>

#include "plan/memory_use.h"
#include "tests/support/published_models.h"

namespace longspan::plan {
namespace {

spec::HardwareSpec Gpu() {
  return {.name = "test",
          .bf16_flops = 1e15,
          .fp8_flops = 2e15,
          .memory_bytes = 1e11,
          .memory_bytes_per_s = 4e12,
          .gpus_per_node = 8,
          .nvlink = {.bytes_per_s = 4e11, .latency_s = 1e-5},
          .infiniband = {.bytes_per_s = 5e10, .latency_s = 2e-5},
          .ethernet = {.bytes_per_s = 1e10, .latency_s = 3e-5},
          .kernels = {.bf16_products = 0.8,
                      .fp8_products = 0.6,
                      .attention = 0.5,
                      .sparse_attention = 0.5,
                      .index = 0.5,
                      .memory = 0.8,
                      .links = 0.8,
                      .half_rows = 32,
                      .launch_s = 3e-6}};
}

Deployment On(const spec::ModelSpec& model, const spec::Mesh& mesh) {
  return {.model = model,
          .mesh = mesh,
          .hardware = Gpu(),
          .precision = {.fp8_weights = true, .kv_bytes = 2}};
}

StepSeconds StepOf(const Deployment& deployment, int64_t begin, int64_t end) {
  const RowRange slice = {begin, end};
  return HardwareCost(deployment)
      .Step({0, deployment.model.layers()}, std::span(&slice, 1), /*listed=*/0);
}

TEST(HardwareCostTest, GroupedAttentionIsItsMultiplyAddsAtTheShareOfThePeak) {
  const auto deployment = On(support::Qwen3With235B(), {});
  // Four operations for a head's dimension and a pair; a tile of 128 keys is computed as a whole.
  const double pairs = 8192.0 * (65536 + 4096 + 64);
  const double want = 94 * pairs * 4 * 64 * 128 / (1e15 * 0.5);
  EXPECT_NEAR(StepOf(deployment, 65536, 65536 + 8192).attention, want, 1e-3 * want);
}

TEST(HardwareCostTest, ProductsOfManyRowsAreTheActiveWeightsAtTheShareOfThePeak) {
  const auto deployment = On(support::Qwen3With235B(), {});
  // 22 billion of the 235 are multiplied with a token, the head aside.
  const double want = 2 * 21.2e9 * 65536 / (2e15 * 0.6);
  EXPECT_NEAR(StepOf(deployment, 0, 65536).products, want, 0.03 * want);
}

TEST(HardwareCostTest, RanksDivideTheWork) {
  const spec::ModelSpec model = support::DeepseekV31();
  const StepSeconds whole = StepOf(On(model, {}), 32768, 40960);
  const StepSeconds tensor = StepOf(On(model, {.tp = 8}), 32768, 40960);
  const StepSeconds context = StepOf(On(model, {.cp = 8, .ep = 8}), 32768, 40960);
  EXPECT_NEAR(tensor.attention, whole.attention / 8, 0.01 * whole.attention);
  // Projections to the latents are whole at every tensor-parallel rank.
  EXPECT_GT(tensor.products, whole.products / 8);
  EXPECT_LT(tensor.products, whole.products / 5);
  EXPECT_LT(context.products, whole.products / 5);
  EXPECT_EQ(whole.collectives, 0);
  EXPECT_GT(tensor.tensor, 0);
  EXPECT_GT(context.context, 0);
  EXPECT_GT(context.expert, 0);
  EXPECT_NEAR(context.collectives, context.context + context.expert, 1e-12);
}

// Each rank keeps a part of the cache, reads that, and sends queries where keys went before.
TEST(HardwareCostTest, RanksThatDivideTheCacheKeepAPartOfIt) {
  for (const spec::ModelSpec& model : {support::Qwen3With235B(), support::DeepseekV32()}) {
    Deployment deployment = On(model, {.cp = 4});
    const StepSeconds whole = StepOf(deployment, 65536, 65536 + 4096);
    const LayerRange layers = {0, model.layers()};
    const double kept = MemoryOfRank(deployment, {&layers, 1}, 0).kv_bytes_per_token;
    deployment.kv_placement = KvPlacement::kSharded;
    const StepSeconds divided = StepOf(deployment, 65536, 65536 + 4096);
    EXPECT_DOUBLE_EQ(MemoryOfRank(deployment, {&layers, 1}, 0).kv_bytes_per_token, kept / 4);
    EXPECT_GT(divided.context, whole.context);
    EXPECT_NEAR(divided.attention, whole.attention, 0.05 * whole.attention);
    EXPECT_EQ(divided.products, whole.products);
    // A row that decodes behind a long context is bounded by what is read of it.
    deployment.hardware.memory_bytes_per_s /= 100;
    const double read = StepOf(deployment, 65536, 65537).attention;
    deployment.kv_placement = KvPlacement::kReplicated;
    EXPECT_LT(read, 0.5 * StepOf(deployment, 65536, 65537).attention);
  }
  // Attention to latents has the absorbed form only.
  Deployment latent = On(support::DeepseekV31(), {.cp = 4});
  const double either = StepOf(latent, 65536, 65536 + 4096).attention;
  latent.kv_placement = KvPlacement::kSharded;
  EXPECT_GT(StepOf(latent, 65536, 65536 + 4096).attention, 1.5 * either);
}

TEST(HardwareCostTest, GroupsBeyondANodeWaitForItsAdapters) {
  const spec::ModelSpec model = support::DeepseekV31();
  const StepSeconds inside = StepOf(On(model, {.tp = 8}), 0, 8192);
  const StepSeconds across = StepOf(On(model, {.tp = 16}), 0, 8192);
  EXPECT_GT(across.tensor, inside.tensor);
  Deployment slow = On(model, {.tp = 16});
  slow.node_link = NodeLink::kEthernet;
  EXPECT_GT(StepOf(slow, 0, 8192).tensor, 2 * across.tensor);
}

TEST(HardwareCostTest, LatentAttentionTakesTheCheaperForm) {
  const spec::ModelSpec model = support::DeepseekV31();
  const AttentionCost cost(model, Gpu(), {});
  EXPECT_TRUE(cost.IsExpanded({65536, 65536 + 8192}));
  EXPECT_TRUE(cost.IsExpanded({0, 512}));
  EXPECT_FALSE(cost.IsExpanded({65536, 65537}));
  EXPECT_FALSE(cost.IsExpanded({65536, 65536 + 64}));
}

TEST(HardwareCostTest, SparseAttentionGrowsByItsIndexerOnly) {
  const spec::ModelSpec model = support::DeepseekV32();
  const AttentionTerms terms = AttentionCost(model, Gpu(), {}).terms();
  const auto seconds = [&](int64_t begin) {
    return AttentionCost(model, Gpu(), {}).Seconds({begin, begin + 4096});
  };
  EXPECT_NEAR(seconds(131072) - seconds(65536), terms.per_index_pair * 4096.0 * 65536,
              1e-6 * seconds(131072));
  // Every tensor-parallel rank has the whole indexer; context-parallel ranks divide its rows.
  const double alone = StepOf(On(model, {}), 131072, 135168).attention;
  const double tensor = StepOf(On(model, {.tp = 8}), 131072, 135168).attention;
  const double context = StepOf(On(model, {.cp = 8}), 131072, 135168).attention;
  EXPECT_GT(tensor, 0.5 * alone);
  EXPECT_NEAR(context, alone / 8, 1e-9);
}

TEST(HardwareCostTest, AChunkCostSaysNearlyTheSame) {
  for (const spec::ModelSpec& model :
       {support::Qwen3With235B(), support::DeepseekV31(), support::DeepseekV32()}) {
    for (const spec::Mesh& mesh :
         {spec::Mesh{.pp = 8, .tp = 4}, spec::Mesh{.pp = 4, .cp = 8, .ep = 8}}) {
      const HardwareCost cost(On(model, mesh));
      const LayerRange layers = {10, 20};
      const ChunkCost chunk = cost.Chunk(layers);
      for (const int64_t begin : {0, 4096, 65536, 1000000}) {
        for (const int64_t rows : {4096, 8192, 16384}) {
          const RowRange slice = {begin, begin + rows};
          const double want = cost.Seconds(layers, std::span(&slice, 1), 0);
          EXPECT_NEAR(chunk.Seconds(begin, begin + rows), want, 0.15 * want)
              << model.architecture << " " << begin << " " << rows << " cp " << mesh.cp;
        }
      }
    }
  }
}

TEST(HardwareCostTest, TheHeadIsForListedRowsOfTheLastLayers) {
  const auto deployment = On(support::Qwen3With235B(), {});
  const HardwareCost cost(deployment);
  const RowRange slice = {0, 100};
  EXPECT_GT(cost.Step({90, 94}, std::span(&slice, 1), 1).head, 0);
  EXPECT_EQ(cost.Step({90, 94}, std::span(&slice, 1), 0).head, 0);
  EXPECT_EQ(cost.Step({80, 90}, std::span(&slice, 1), 1).head, 0);
}

}  // namespace
}  // namespace longspan::plan
