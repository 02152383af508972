#include "apps/bench_flops.h"

#include <gtest/gtest.h>

#include "model/architecture.h"

namespace longspan::apps {
namespace {

spec::ModelSpec Load(const char* name) {
  return model::LoadModelSpec(std::string(LONGSPAN_SOURCE_DIR "/bench/models/") + name).value();
}

// GFLOP per token and FLOP per context token of these shapes as llama.cpp's baseline counts them.
TEST(BenchFlopsTest, DenseModelIsCountedAsTheBaselineDoes) {
  const spec::ModelSpec model = Load("smollm2-135m");
  EXPECT_EQ(2 * MatmulParametersPerToken(model), 212'336'640);
  EXPECT_EQ(AttentionFlopsPerContextToken(model), 69'120);
}

TEST(BenchFlopsTest, MixtureOfExpertsCountsTheRouterAndTheChosenExperts) {
  const spec::ModelSpec model = Load("bench-qwen3moe");
  EXPECT_EQ(2 * MatmulParametersPerToken(model), 159'907'840);
  EXPECT_EQ(AttentionFlopsPerContextToken(model), 65'536);
}

TEST(BenchFlopsTest, LatentAttentionIsCountedExpandedAndTheIndexerApart) {
  const spec::ModelSpec mla = Load("bench-mla");
  EXPECT_EQ(AttentionFlopsPerContextToken(mla), 61'440);
  EXPECT_EQ(IndexFlopsPerContextToken(mla), 0);
  EXPECT_NEAR(2e-9 * static_cast<double>(MatmulParametersPerToken(mla)), 0.154, 0.0005);
  const spec::ModelSpec dsa = Load("bench-dsa");
  EXPECT_EQ(AttentionFlopsPerContextToken(dsa), 61'440);
  EXPECT_EQ(IndexFlopsPerContextToken(dsa), 24'576);
  EXPECT_NEAR(2e-9 * static_cast<double>(MatmulParametersPerToken(dsa)), 0.1655, 0.0005);
}

TEST(BenchFlopsTest, SparseAttentionStopsGrowing) {
  const spec::ModelSpec dsa = Load("bench-dsa");
  const double one = PrefillFlops(dsa, 2047, 1);
  EXPECT_EQ(PrefillFlops(dsa, 2048, 1) - one, 24'576);
  EXPECT_EQ(one - PrefillFlops(dsa, 2046, 1), 24'576 + 61'440);
  EXPECT_DOUBLE_EQ(PrefillFlops(dsa, 0, 4000),
                   PrefillFlops(dsa, 0, 1000) + PrefillFlops(dsa, 1000, 3000));
  const double deep = DecodeBytes(dsa, {.context = 100'000});
  EXPECT_EQ(deep - DecodeBytes(dsa, {.context = 99'999}), 6 * 128 * 2);
}

// The baseline's line "pp512, 1 thread: 485 tokens/s = 112 GFLOP/s".
TEST(BenchFlopsTest, PrefillAgreesWithTheBaselinesRates) {
  const spec::ModelSpec model = Load("smollm2-135m");
  EXPECT_NEAR(PrefillFlops(model, 0, 512) / 512 * 485 * 1e-9, 112, 0.5);
  EXPECT_NEAR(PrefillFlops(model, 0, 8192) / 8192 * 89 * 1e-9, 44, 0.5);
}

TEST(BenchFlopsTest, APrefillIsTheSumOfItsParts) {
  const spec::ModelSpec model = Load("bench-qwen3moe");
  EXPECT_DOUBLE_EQ(PrefillFlops(model, 0, 100),
                   PrefillFlops(model, 0, 40) + PrefillFlops(model, 40, 60));
}

TEST(BenchFlopsTest, OneDecodedTokenReadsItsExpertsAndItsContext) {
  const spec::ModelSpec model = Load("bench-qwen3moe");
  const double weights = static_cast<double>(MatmulParametersPerToken(model)) + 1024.0 * 32000;
  const double kv = 8 * 2 * 4 * 128 * 2;
  EXPECT_DOUBLE_EQ(DecodeBytes(model, {.batch = 1, .context = 100}), 2 * weights + 100 * kv);
}

TEST(BenchFlopsTest, ALargeBatchReadsEveryExpertOnce) {
  const spec::ModelSpec model = Load("bench-qwen3moe");
  const double one = DecodeBytes(model, {.batch = 1, .context = 0});
  const double many = DecodeBytes(model, {.batch = 10'000, .context = 0});
  const double missing_experts = 28.0 * 3 * 1024 * 384 * 8;
  EXPECT_NEAR(many - one, 2 * missing_experts, 1);
}

}  // namespace
}  // namespace longspan::apps
