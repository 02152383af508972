#include "apps/cluster_setup.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>

#include "apps/engine_setup.h"
#include "plan/memory_use.h"
#include "sim/stage_split.h"

namespace longspan::apps {
namespace {

// Of the embedded model, whose head weighs more than its layers.
TEST(ClusterSetupTest, SimulatedStagesAreThoseOfRealRanks) {
  EngineFlags flags;
  flags.mesh.pp = 2;
  flags.model_path = std::string(LONGSPAN_SOURCE_DIR) + "/models/tiny-qwen3-moe";
  flags.hardware = std::string(LONGSPAN_SOURCE_DIR) + "/hardware/h200.json";
  const auto real = ResolveSetup(flags);
  ASSERT_TRUE(real.ok()) << real.status().message();
  const ClusterFlags cluster_flags = {.hardware = flags.hardware};
  const auto cluster = LoadClusterModel(flags.model_path, cluster_flags);
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  const auto simulated = SimulationSetupOf(flags, cluster_flags, *cluster);
  ASSERT_TRUE(simulated.ok()) << simulated.status().message();
  EXPECT_EQ(simulated->stages, real->stages);
}

// Simulated and emulated ranks of a cluster whose memory is what divides the layers.
TEST(ClusterSetupTest, StagesFitTheMemoryForSimulatedAndEmulatedRanks) {
  EngineFlags flags;
  flags.mesh.pp = 2;
  flags.model_path = std::string(LONGSPAN_SOURCE_DIR) + "/models/tiny-qwen3-moe";
  flags.hardware = std::string(LONGSPAN_SOURCE_DIR) + "/hardware/h200.json";
  flags.chunked_prefill_size = 64;
  flags.max_total_tokens = 4096;
  const ClusterFlags cluster_flags = {.hardware = flags.hardware};
  auto cluster = LoadClusterModel(flags.model_path, cluster_flags);
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  const auto roomy = SimulationSetupOf(flags, cluster_flags, *cluster);
  ASSERT_TRUE(roomy.ok()) << roomy.status().message();
  flags.backend = "emulated";
  const auto emulated = ResolveSetup(flags);
  ASSERT_TRUE(emulated.ok()) << emulated.status().message();
  EXPECT_EQ(emulated->stages, roomy->stages);
  const auto held = [&](const std::vector<plan::LayerRange>& stages) {
    return sim::FullestRankBytes(roomy->deployment, 2, stages, {.prompt_tokens = 4096});
  };
  const double workspace = plan::MemoryOfRank(roomy->deployment, {}, 64).workspace_bytes;
  double least = held(roomy->stages);
  for (int first = 1; first < cluster->model.layers(); ++first)
    least = std::min(least, held({{0, first}, {first, cluster->model.layers()}}));
  cluster->hardware.memory_bytes = least + workspace;
  const auto tight = SimulationSetupOf(flags, cluster_flags, *cluster);
  ASSERT_TRUE(tight.ok()) << tight.status().message();
  EXPECT_LE(held(tight->stages), least);
}

TEST(ClusterSetupTest, DecodesOfEmulatedRanksStallInTheirTime) {
  EngineFlags flags;
  EXPECT_FALSE(DecodeStallSeconds(flags));
  flags.max_decode_stall_ms = 50;
  flags.time_scale = 0.1;
  EXPECT_DOUBLE_EQ(*DecodeStallSeconds(flags), 0.05);
  flags.backend = "emulated";
  EXPECT_DOUBLE_EQ(*DecodeStallSeconds(flags), 0.005);
}

TEST(ClusterSetupTest, AContextAboveTheModelsIsRefused) {
  EngineFlags flags;
  flags.model_path = std::string(LONGSPAN_SOURCE_DIR) + "/models/tiny-qwen3-moe";
  flags.hardware = std::string(LONGSPAN_SOURCE_DIR) + "/hardware/h200.json";
  const auto cluster = LoadClusterModel(flags.model_path, {.hardware = flags.hardware});
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  flags.context_length = cluster->model.context_length + 1;
  const auto setup = SimulationSetupOf(flags, {.hardware = flags.hardware}, *cluster);
  EXPECT_THAT(setup.status().message(), ::testing::HasSubstr("max_position_embeddings"));
}

}  // namespace
}  // namespace longspan::apps
