#include "apps/chunk_limit.h"

#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

EngineSetup SetupOf(const EngineFlags& flags) {
  auto setup = ResolveSetup(flags);
  EXPECT_TRUE(setup.ok()) << setup.status().message();
  return setup.ok() ? std::move(setup).value() : EngineSetup{};
}

EngineFlags Flags(int stages, const char* policy) {
  EngineFlags flags;
  flags.model_path = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";
  flags.backend = "cpu";
  flags.mesh.pp = stages;
  flags.chunk_policy = policy;
  return flags;
}

TEST(ChunkLimitTest, PlansOfSeveralStagesMayChooseLongerChunks) {
  EXPECT_EQ(SetupOf(Flags(2, "planned")).chunk_tokens, 4096);
  EXPECT_EQ(SetupOf(Flags(1, "planned")).chunk_tokens, 512);
  EXPECT_EQ(SetupOf(Flags(2, "fixed")).chunk_tokens, 512);
  EXPECT_EQ(SetupOf(Flags(2, "quadratic")).chunk_tokens, 512);
  EngineFlags flags = Flags(2, "planned");
  flags.dynamic_chunking = true;
  EXPECT_EQ(SetupOf(flags).chunk_tokens, 512);
  flags = Flags(2, "planned");
  flags.chunked_prefill_size = 100;
  EXPECT_EQ(SetupOf(flags).chunk_tokens, 100);
}

TEST(ChunkLimitTest, WideModelsGetShorterOnes) {
  const EngineFlags flags = Flags(2, "planned");
  EngineSetup setup = SetupOf(flags);
  const int64_t narrow = DefaultChunkTokens(flags, setup);
  setup.model.hidden_size = 16384;
  const int64_t wide = DefaultChunkTokens(flags, setup);
  EXPECT_LT(wide, narrow);
  EXPECT_GE(wide, 512);
  setup.on_gpu = true;
  EXPECT_GE(DefaultChunkTokens(flags, setup), 8192);
  EXPECT_LE(DefaultChunkTokens(flags, setup), 16384);
}

}  // namespace
}  // namespace longspan::apps
