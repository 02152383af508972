// Whole generations on a GPU: the CPU's text, near-ties aside, also through two stages that share
// the GPU.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/engine/golden.h"

namespace longspan::testing {
namespace {

// What the CPU computes in seconds.
constexpr size_t kLongest = 2100;

TEST(GpuTextTest, IsTheCpusAndThatOfTwoStages) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto exact = Start(model, {.backend = "cpu", .dtype = "f32", .threads = 8});
  const auto cpu = Start(model, {.backend = "cpu", .dtype = "bf16", .threads = 8});
  const auto gpu = Start(model, {.backend = "cuda", .dtype = "bf16"});
  const auto small_chunks =
      Start(model, {.backend = "cuda", .dtype = "bf16", .stages = 2, .chunk_tokens = 100});
  const auto looped =
      Start(model, {.backend = "cuda", .dtype = "bf16", .stages = 2, .virtual_stages = 2});
  for (const GoldenCase& golden : ReadGolden("tiny-qwen3-moe")) {
    if (golden.ids.size() > kLongest) continue;
    const engine::Request request = {.prompt = golden.ids, .max_tokens = 32};
    const auto expected = Generate(*cpu, request).ids;
    const size_t certain = std::min(IdsBeforeANearTie(*exact, golden), expected.size());
    for (engine::Engine* engine : {gpu.get(), small_chunks.get(), looped.get()}) {
      const auto ids = Generate(*engine, request).ids;
      ASSERT_GE(ids.size(), certain) << golden.name;
      for (size_t i = 0; i < certain; ++i)
        ASSERT_EQ(ids[i], expected[i]) << golden.name << " token " << i;
    }
  }
}

// Many sequences that decode together, drawn with a seed: as each alone.
TEST(GpuTextTest, InCompanyIsAsAlone) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto gpu = Start(model, {.backend = "cuda", .dtype = "f32", .reuse_prefixes = false});
  std::vector<engine::Request> requests;
  for (int i = 0; i < 12; ++i) {
    engine::Request request{.prompt = RandomIds(20 + 37 * i, 500, i), .max_tokens = 24};
    request.sampling.temperature = i % 3 == 0 ? 0.0 : 0.8;
    request.sampling.seed = static_cast<uint64_t>(i);
    requests.push_back(std::move(request));
  }
  const auto together = Generate(*gpu, requests);
  int same = 0;
  for (size_t i = 0; i < requests.size(); ++i)
    same += static_cast<int>(Generate(*gpu, requests[i]).ids == together[i].ids);
  // Sums in another order may turn a near-tie.
  EXPECT_GE(same, 11);
}

}  // namespace
}  // namespace longspan::testing
