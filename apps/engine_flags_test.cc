#include "apps/engine_flags.h"

#include <gmock/gmock.h>

namespace longspan::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(EngineFlagsTest, WhatChangesNothingIsSaid) {
  EXPECT_THAT(FlagsWithoutEffect({}), IsEmpty());
  EngineFlags flags;
  flags.hardware = "h20";
  flags.node_link = "ethernet";
  flags.time_scale = 0.1;
  EXPECT_THAT(
      FlagsWithoutEffect(flags),
      ElementsAre(HasSubstr("--hardware"), HasSubstr("--node-link"), HasSubstr("--time-scale")));
  flags.backend = "emulated";
  EXPECT_THAT(FlagsWithoutEffect(flags), IsEmpty());
  flags.dynamic_chunking = true;
  EXPECT_THAT(FlagsWithoutEffect(flags), IsEmpty());
  flags.kv_placement = "sharded";
  EXPECT_THAT(FlagsWithoutEffect(flags), ElementsAre(HasSubstr("--kv-placement")));
}

// Launch commands of others have it beside whatever the environment says.
TEST(EngineFlagsTest, DynamicChunkingIsQuadraticWhateverThePolicy) {
  EngineFlags flags;
  EXPECT_EQ(ChunkPolicyName(flags), "planned");
  flags.dynamic_chunking = true;
  for (const char* policy : {"", "quadratic", "planned", "fixed"}) {
    flags.chunk_policy = policy;
    EXPECT_EQ(ChunkPolicyName(flags), "quadratic");
    EXPECT_TRUE(CheckEngineFlags(flags).ok());
  }
}

TEST(EngineFlagsTest, EmulatedRanksRefuseAnotherComputeType) {
  EngineFlags flags;
  flags.backend = "emulated";
  flags.hardware = "h20";
  EXPECT_TRUE(CheckEngineFlags(flags).ok());
  flags.dtype = "f32";
  EXPECT_THAT(CheckEngineFlags(flags).message(), HasSubstr("--dtype f32"));
}

TEST(EngineFlagsTest, SimulationRefusesWhatItWouldNotCount) {
  EngineFlags flags;
  flags.nodes = 4;
  flags.hardware = "h20";
  EXPECT_TRUE(CheckSimulatedFlags(flags).ok());
  EngineFlags traced = flags;
  traced.trace_out = "trace.json";
  EXPECT_THAT(CheckSimulatedFlags(traced).message(), HasSubstr("--svg"));
  EngineFlags wide = flags;
  wide.dtype = "f32";
  EXPECT_THAT(CheckSimulatedFlags(wide).message(), HasSubstr("--dtype f32"));
  EngineFlags divided = flags;
  divided.mesh.cp = 2;
  EXPECT_TRUE(CheckSimulatedFlags(divided).ok());
  divided.kv_placement = "sharded";
  EXPECT_TRUE(CheckSimulatedFlags(divided).ok());
}

}  // namespace
}  // namespace longspan::apps
