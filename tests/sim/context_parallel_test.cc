// Context parallelism for DeepSeek-V3.2: what ranks gain that divide the tokens of a chunk, where
// tensor-parallel ranks each have the whole indexer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/published_clusters.h"
#include "tests/support/published_models.h"

namespace longspan::testing {
namespace {

// Attention alone, with its projections: next to nothing in the feed-forward part.
double AttentionSeconds(const spec::Mesh& mesh) {
  spec::ModelSpec model = support::DeepseekV32();
  model.intermediate_size = 128;
  model.feed_forward.assign(61, spec::FeedForwardKind::kDense);
  const plan::HardwareCost cost({.model = model,
                                 .mesh = mesh,
                                 .hardware = Profile("h200"),
                                 .precision = {.fp8_weights = true, .kv_bytes = 2}});
  double seconds = 0;
  for (int64_t begin = 0; begin < 131072; begin += 8192) {
    const plan::RowRange slice = {begin, begin + 8192};
    const plan::StepSeconds step = cost.Step({0, 61}, std::span(&slice, 1), 0);
    seconds += step.products + step.attention;
  }
  return seconds;
}

// NVIDIA's AIConfigurator has measured times of the module on an H200. Summed over 16 chunks of 8K
// and 61 layers: 20.7 s on one GPU, 14.3 s with the heads of TP8, 2.65 s with an eighth of the
// queries. The same code reads whole cases of a table there; here it is counted.
TEST(ContextParallelTest, CountsWhatWasMeasuredOfTheSparseAttentionModule) {
  const struct {
    spec::Mesh mesh;
    double measured;
  } cases[] = {{{}, 20.7}, {{.tp = 8}, 14.3}, {{.cp = 8}, 2.65}};
  for (const auto& [mesh, measured] : cases) {
    const double counted = AttentionSeconds(mesh);
    fmt::print("TP{} CP{}: {:.2f} s counted, {:.2f} s measured\n", mesh.tp, mesh.cp, counted,
               measured);
    EXPECT_NEAR(counted, measured, 0.25 * measured);
  }
  EXPECT_GT(AttentionSeconds({.tp = 8}) / AttentionSeconds({.cp = 8}), 4);
}

double Ttft(const spec::Mesh& mesh, int64_t prompt) {
  sim::SimulationSetup setup = OnCluster(support::DeepseekV32(), mesh, "h200");
  setup.scheduler.chunk_tokens = 8192;
  const auto result = sim::Simulate(setup, {{.prompt_tokens = prompt}});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->requests[0].ttft_s : 0;
}

TEST(ContextParallelTest, EveryDoublingOfTheContextRanksSavesTime) {
  for (const int64_t prompt : {32768, 131072}) {
    double before = 0;
    for (const int cp : {1, 2, 4, 8}) {
      const double seconds = Ttft({.cp = cp, .tp = 8 / cp, .ep = 8}, prompt);
      fmt::print("DeepSeek-V3.2, {}K, 8 x H200, CP{} TP{} EP8: {:.2f} s\n", prompt / 1024, cp,
                 8 / cp, seconds);
      if (cp > 1) {
        EXPECT_LT(seconds, before);
      }
      before = seconds;
    }
  }
}

}  // namespace
}  // namespace longspan::testing
