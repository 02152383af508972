#include "sim/layout_search.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "sim/hardware_file.h"
#include "sim/simulation.h"
#include "tests/support/published_models.h"

namespace longspan::sim {
namespace {

using testing::HasSubstr;

SearchRequest Request(const spec::ModelSpec& model, int gpus, const std::string& hardware) {
  SearchRequest request;
  request.model = model;
  request.hardware =
      *LoadHardware(std::string(LONGSPAN_SOURCE_DIR) + "/hardware/" + hardware + ".json", {});
  request.gpus = gpus;
  request.fp8_weights = true;
  request.weight_block = 128;
  return request;
}

TEST(LayoutSearchTest, EveryLayoutFitsAndTheBestIsFirst) {
  const SearchRequest request = Request(support::Qwen3With235B(), 16, "h20");
  const auto found = SearchLayouts(request);
  ASSERT_TRUE(found.ok()) << found.status().message();
  double before = 0;
  for (const Layout& layout : found->layouts) {
    EXPECT_EQ(layout.mesh.ranks(), 16);
    EXPECT_LE(layout.mesh.stage_ranks(), 8);
    EXPECT_EQ(static_cast<int>(layout.stages.size()), layout.mesh.pp * layout.loops);
    EXPECT_EQ(layout.stages.back().end, 94);
    EXPECT_GE(layout.kv_tokens, request.prompt_tokens);
    EXPECT_LT(layout.memory.weight_bytes, request.hardware.memory_bytes);
    EXPECT_EQ(layout.chunk_ends.back(), request.prompt_tokens);
    EXPECT_GE(layout.ttft_s, before);
    EXPECT_GT(layout.ttft_s, layout.parts.total());
    before = layout.ttft_s;
  }
}

TEST(LayoutSearchTest, WhatCutsBlocksIsRefusedUnlessToldOtherwise) {
  SearchRequest request = Request(support::Qwen3With235B(), 8, "h20");
  const auto eight = BestOf(request, {.tp = 8}, 1, 2);
  EXPECT_THAT(eight.status().message(), HasSubstr("mlp.experts.*.gate_proj.weight"));
  request.ignore_blocks = true;
  EXPECT_TRUE(BestOf(request, {.tp = 8}, 1, 2).ok());
}

TEST(LayoutSearchTest, WiderTensorParallelismIsRefusedWithItsReasonOrCompared) {
  SearchRequest request = Request(support::DeepseekV31(), 32, "h20");
  request.most_virtual_stages = 1;
  const auto found = SearchLayouts(request);
  ASSERT_TRUE(found.ok()) << found.status().message();
  const auto refused_with = [&](const std::string& reason) {
    return std::any_of(found->refused.begin(), found->refused.end(), [&](const auto& refused) {
      return refused.why.find(reason) != std::string::npos;
    });
  };
  EXPECT_TRUE(refused_with("--tp-size 32 leaves 64 of the 2048 rows of mlp.experts.*.gate_proj"));
  EXPECT_TRUE(refused_with("the 16 ranks of a stage do not lie within a node of 8 GPUs"));
  const auto has_tp32 = [](const SearchResult& result) {
    return std::any_of(result.layouts.begin(), result.layouts.end(),
                       [](const Layout& layout) { return layout.mesh.tp == 32; });
  };
  EXPECT_FALSE(has_tp32(*found));
  request.ignore_blocks = true;
  const auto compared = SearchLayouts(request);
  ASSERT_TRUE(compared.ok()) << compared.status().message();
  EXPECT_TRUE(has_tp32(*compared));
  EXPECT_FALSE(CheckServable(request, {.tp = 32}).ok());
}

// All rows of the prompt pass the link between the nodes, one after the other.
TEST(LayoutSearchTest, ASlowLinkBetweenStagesBoundsTheTime) {
  SearchRequest request = Request(support::Qwen3With235B(), 16, "h20");
  const spec::Mesh mesh = {.pp = 4, .tp = 4};
  const auto fast = BestOf(request, mesh, 1, 2);
  ASSERT_TRUE(fast.ok()) << fast.status().message();
  request.hardware.infiniband.bytes_per_s = 1e7;
  const auto slow = BestOf(request, mesh, 1, 2);
  ASSERT_TRUE(slow.ok()) << slow.status().message();
  const double transfer =
      2.0 * request.model.hidden_size * static_cast<double>(request.prompt_tokens) / 1e7;
  EXPECT_LT(fast->ttft_s, transfer / 2);
  EXPECT_GT(slow->ttft_s, transfer);
  EXPECT_LT(slow->ttft_s, transfer + fast->ttft_s);
}

TEST(LayoutSearchTest, TheSimulatorTakesTheSameTimeForALayout) {
  SearchRequest request = Request(support::Qwen3With235B(), 16, "h20");
  request.hardware.infiniband.bytes_per_s = 2e8;
  for (const int loops : {1, 2}) {
    const auto layout = BestOf(request, {.pp = 4, .tp = 4}, loops, 2);
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    SimulationSetup setup;
    setup.deployment = {.model = request.model,
                        .mesh = layout->mesh,
                        .hardware = request.hardware,
                        .precision = {.fp8_weights = true, .kv_bytes = 2}};
    setup.loops = loops;
    setup.stages = layout->stages;
    setup.context_length = request.model.context_length;
    setup.scheduler.chunk_tokens = layout->chunk_tokens;
    setup.scheduler.chunk_policy = {.kind = engine::ChunkPolicy::Kind::kPlanned};
    setup.scheduler.prior =
        plan::PriorCost(plan::HardwareCost(setup.deployment), {4, loops}, setup.stages);
    const auto run = Simulate(setup, {{.prompt_tokens = request.prompt_tokens}});
    ASSERT_TRUE(run.ok()) << run.status().message();
    // Its chunks are planned anew as steps are measured.
    EXPECT_NEAR(run->requests[0].ttft_s, layout->ttft_s, 0.05 * layout->ttft_s) << loops;
  }
}

TEST(LayoutSearchTest, AMeshGetsTheFirstCacheTypeWithWhichThePromptFits) {
  SearchRequest request = Request(support::Qwen3With235B(), 4, "h20");
  const auto kv_bytes = [&](int64_t tokens) -> int64_t {
    request.prompt_tokens = tokens;
    const auto found = SearchLayouts(request);
    for (const Layout& layout : found.ok() ? found->layouts : std::vector<Layout>())
      if (layout.mesh.tp == 4 && layout.mesh.ep == 1) return layout.kv_bytes;
    return 0;
  };
  request.kv_bytes = {2, 1};
  EXPECT_EQ(kv_bytes(131072), 2);
  // The most with a cache of 16 bits, and half as much again.
  request.prompt_tokens = 131072;
  const auto room = BestOf(request, {.tp = 4}, 1, 2);
  ASSERT_TRUE(room.ok()) << room.status().message();
  EXPECT_EQ(kv_bytes(room->kv_tokens * 3 / 2), 1);
  request.kv_bytes = {2};
  EXPECT_EQ(kv_bytes(room->kv_tokens * 3 / 2), 0);
}

TEST(LayoutSearchTest, AModelThatFitsNowhereIsRefusedWithTheSizes) {
  const auto found = SearchLayouts(Request(support::DeepseekV31(), 2, "h20"));
  EXPECT_EQ(found.status().code(), base::StatusCode::kNotFound);
  EXPECT_THAT(found.status().message(), HasSubstr("do not fit a GPU of 96 GB"));
}

TEST(LayoutSearchTest, SparseAttentionWantsContextParallelRanks) {
  const auto found = SearchLayouts(Request(support::DeepseekV32(), 8, "h200"));
  ASSERT_TRUE(found.ok()) << found.status().message();
  const auto with_tp = BestOf(Request(support::DeepseekV32(), 8, "h200"), {.tp = 8}, 1, 2);
  ASSERT_TRUE(with_tp.ok());
  EXPECT_GT(found->layouts.front().mesh.cp, 1);
  EXPECT_LT(found->layouts.front().ttft_s, 0.8 * with_tp->ttft_s);
}

}  // namespace
}  // namespace longspan::sim
