#include "apps/cluster_setup.h"

#include <gmock/gmock.h>

#include "apps/engine_setup.h"

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
