// What ranks are told to have received is what the formulas say.
#include <string>

#include <gtest/gtest.h>

#include "model/architecture.h"
#include "plan/context_volume.h"
#include "plan/exchange_volume.h"
#include "tests/engine/engine_harness.h"

namespace longspan::testing {
namespace {

constexpr int64_t kChunk = 128;

// Of the first chunk of a prompt of two, by rank: nothing is sampled there.
std::vector<plan::AxisBytes> BytesOfAChunk(engine::Engine& engine, int vocab_size) {
  std::vector<plan::AxisBytes> bytes;
  engine.set_step_observer([&](const engine::StepRecord& step) {
    if (step.slices.front().begin > 0) return;
    for (const plan::StageTiming& rank : step.stages) bytes.push_back(rank.exchanged);
  });
  Generate(engine, {.prompt = RandomIds(2 * kChunk, vocab_size, 1), .max_tokens = 1});
  engine.set_step_observer({});
  return bytes;
}

// By backend.
class ExchangeBytesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { LONGSPAN_REQUIRE_BACKEND(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(, ExchangeBytesTest, ::testing::Values("cpu", "cuda"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(ExchangeBytesTest, AreThoseOfTheFormulas) {
  const auto path = ModelFolder("tiny-qwen3-moe");
  const spec::ModelSpec model = model::LoadModelSpec(path).value();
  const int64_t row_bytes = model.hidden_size * int64_t{sizeof(float)};
  for (const int ranks : {2, 4}) {
    const auto engine = Start(path, {.backend = GetParam(),
                                     .dtype = "f32",
                                     .stages = 2,
                                     .tensor_ranks = ranks,
                                     .expert_ranks = 2,
                                     .chunk_tokens = kChunk,
                                     .reuse_prefixes = false});
    const auto bytes = BytesOfAChunk(*engine, model.vocab_size);
    ASSERT_EQ(std::ssize(bytes), 2 * ranks);
    const int stage_layers = model.layers() / 2;
    const double layers = stage_layers * plan::TensorLayerBytes(kChunk, row_bytes, ranks);
    const plan::ExpertVolume volume = {.ranks = 2,
                                       .hidden = model.hidden_size,
                                       .element = sizeof(float),
                                       .choices = model.moe.experts_per_token};
    for (int stage = 0; stage < 2; ++stage) {
      const double embedding = stage == 0 ? plan::SumBytes(kChunk * row_bytes, ranks) : 0;
      double experts = 0;
      for (int lane = 0; lane < ranks; ++lane) {
        const plan::AxisBytes& rank = bytes[static_cast<size_t>(stage * ranks + lane)];
        EXPECT_EQ(static_cast<double>(rank.tensor), embedding + layers);
        EXPECT_EQ(rank.context, 0);
        experts += static_cast<double>(rank.expert) / ranks / stage_layers;
      }
      // A row goes to one or both of the ranks.
      EXPECT_GT(experts, plan::MeanExpertLayerBytes(volume, 1, kChunk));
      EXPECT_LT(experts, plan::MeanExpertLayerBytes(volume, 2, kChunk));
    }
  }
}

// A latent, its rope key and the index key of every token; or queries and results, where ranks keep
// a page each of the chunk's two, and what an indexer needs to select in both.
TEST_P(ExchangeBytesTest, OfContextRanksAreThoseOfTheFormulas) {
  struct Case {
    const char* model;
    const char* placement;
  };
  for (const auto& [name, placement] : {Case{"tiny-qwen3-moe", "replicated"},
                                        {"rand-deepseek-v32", "replicated"},
                                        {"tiny-qwen3-moe", "sharded"},
                                        {"rand-deepseek-v32", "sharded"},
                                        {"tiny-deepseek-v32", "sharded"}}) {
    SCOPED_TRACE(std::string(name) + " " + placement);
    if (IsFixture(name)) LONGSPAN_REQUIRE_FIXTURES();
    const auto path = ModelFolder(name);
    const spec::ModelSpec model = model::LoadModelSpec(path).value();
    if (GetParam() == std::string("cuda") && placement == std::string("sharded") && model.indexer)
      continue;  // GPUs refuse it
    const auto engine = Start(path, {.backend = GetParam(),
                                     .dtype = "f32",
                                     .kv_cache_dtype = "bf16",
                                     .context_ranks = 2,
                                     .kv_placement = placement,
                                     .chunk_tokens = kChunk,
                                     .reuse_prefixes = false});
    const bool sharded = placement == std::string("sharded");
    const auto volume_of = sharded ? plan::ShardedVolume : plan::ReplicatedVolume;
    double received = 0;
    for (const plan::AxisBytes& rank : BytesOfAChunk(*engine, model.vocab_size)) {
      EXPECT_EQ(rank.tensor, 0);
      received += static_cast<double>(rank.context) / 2;
    }
    const plan::ContextVolume volume = volume_of(model, 2, 2, sizeof(float));
    double per_token_layer = volume.per_token_layer;
    if (model.indexer && model.indexer->top_k < kChunk)
      per_token_layer += volume.per_selecting_token_layer;
    EXPECT_EQ(received, static_cast<double>(kChunk * model.layers()) * per_token_layer);
  }
}

}  // namespace
}  // namespace longspan::testing
