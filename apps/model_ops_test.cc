#include "apps/model_ops.h"

#include <filesystem>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/wiring.h"
#include "model/architecture.h"
#include "model/stage_model.h"

namespace longspan::apps {
namespace {

using ::testing::DoubleEq;
using ::testing::Gt;
using ::testing::IsSupersetOf;

spec::ModelSpec SpecOf(const std::string& folder) {
  auto model =
      model::LoadModelSpec(std::filesystem::path(LONGSPAN_SOURCE_DIR) / "bench/models" / folder);
  LONGSPAN_CHECK(model.ok(), "{}", model.status().message());
  return std::move(*model);
}

// The same kinds of layers, small.
spec::ModelSpec Shrunk(spec::ModelSpec model) {
  model.vocab_size = 100;
  model.hidden_size = 32;
  model.intermediate_size = 48;
  model.attention.heads = 4;
  model.attention.kv_heads = 2;
  model.attention.head_dim = 16;
  if (model.moe.experts > 0) model.moe.intermediate_size = 24;
  if (model.latent_attention)
    model.latent_attention = spec::LatentAttentionSpec{.heads = 2,
                                                       .query_rank = 24,
                                                       .latent_rank = 32,
                                                       .nope_dim = 16,
                                                       .rope_dim = 8,
                                                       .value_dim = 16};
  if (model.indexer)
    model.indexer = spec::IndexerSpec{.heads = 2, .head_dim = 16, .rope_dim = 8, .top_k = 16};
  return model;
}

std::set<std::string> NeededOps(const spec::ModelSpec& model) {
  const model::StagePart part = {
      .ranges = {{0, model.layers()}}, .share = {.rank = 0, .size = 2}, .shares_cache = true};
  const auto names = ops::MissingOps({}, model::NeededOps(model, part));
  return {names.begin(), names.end()};
}

// Of the whole table.
std::set<std::string> AllOps() {
  std::vector<ops::OpKind> kinds;
  for (int kind = 0; kind <= static_cast<int>(ops::OpKind::kTopLogits); ++kind)
    kinds.push_back(static_cast<ops::OpKind>(kind));
  const auto names = ops::MissingOps({}, kinds);
  return {names.begin(), names.end()};
}

TEST(ModelOpsTest, TimesEveryOpThatAModelNeeds) {
  const auto backend = FindBackend("cpu");
  ASSERT_TRUE(backend.ok());
  for (const auto type : {tensor::DType::kBf16, tensor::DType::kF32}) {
    const auto bench =
        OpBench::Create(**backend, {.threads = 1},
                        {.type = type, .repeat = 1, .shortest_run_s = 0, .beyond_caches = 0});
    ASSERT_TRUE(bench.ok());
    std::set<std::string> timed_of_any;
    for (const char* folder : {"smollm2-135m", "bench-qwen3moe", "bench-mla", "bench-dsa"}) {
      const spec::ModelSpec model = Shrunk(SpecOf(folder));
      std::set<std::string> timed;
      for (const OpProbe& probe : ModelOps(model, {.slices = 1, .rows = 6, .keys = 70})) {
        const auto figure = probe(**bench);
        ASSERT_TRUE(figure.ok()) << figure.status().message();
        EXPECT_THAT(figure->seconds, Gt(0)) << figure->op;
        EXPECT_THAT(figure->bytes, Gt(0)) << figure->op;
        timed.insert(figure->op);
      }
      EXPECT_THAT(timed, IsSupersetOf(NeededOps(model))) << folder;
      timed_of_any.merge(timed);
    }
    EXPECT_THAT(timed_of_any, IsSupersetOf(AllOps()));
  }
}

TEST(ModelOpsTest, PairsAreThoseOfCausalRows) {
  for (const SliceShape& shape : {SliceShape{1, 1, 1}, SliceShape{2, 3, 10}, SliceShape{1, 7, 7}}) {
    for (const int64_t most : {int64_t{1}, int64_t{4}, int64_t{8}, int64_t{100}}) {
      double pairs = 0;
      for (int64_t row = 0; row < shape.rows; ++row)
        pairs +=
            static_cast<double>(std::min(most, shape.keys - shape.rows + 1 + row) * shape.slices);
      EXPECT_THAT(shape.Pairs(most), DoubleEq(pairs)) << shape.keys << " " << most;
    }
  }
}

TEST(OpBenchTest, TakesAsManyCopiesAsExceedTheCaches) {
  const auto backend = FindBackend("cpu");
  ASSERT_TRUE(backend.ok());
  const auto bench = OpBench::Create(**backend, {.threads = 1}, {.beyond_caches = 1000});
  ASSERT_TRUE(bench.ok());
  EXPECT_EQ((*bench)->CopiesBeyondCaches(1), 1000);
  EXPECT_EQ((*bench)->CopiesBeyondCaches(300), 4);
  EXPECT_EQ((*bench)->CopiesBeyondCaches(5000), 1);
}

}  // namespace
}  // namespace longspan::apps
