// Planned chunks in the real scheduler against other policies with the best of many settings for
// each batch of prompts, over stages that only count time.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "engine/virtual_stages.h"

namespace longspan::engine {
namespace {

using testing::VirtualStages;

constexpr plan::ChunkCost kCost = {.per_step = 4e-3, .per_token = 5e-6, .per_pair = 4e-11};

struct Batch {
  int stages = 1;
  int prompts = 1;
  int64_t tokens = 0;  // of each
};

// From when they come, all at once, to the last one's first token. The costs are known from some
// prompts before them.
double Seconds(const Batch& batch, const ChunkPolicy& policy, int64_t chunk_tokens) {
  constexpr double kBegin = 100;
  VirtualStages server(
      {.scheduler = {.chunk_tokens = chunk_tokens, .chunk_policy = policy, .stages = batch.stages},
       .stages = batch.stages,
       .pages = 1 << 16,
       .context_length = 1 << 21,
       .stage_seconds = [](const plan::StepPlan& plan) { return kCost.Seconds(WorkOf(plan, 0)); }});
  double at = 0;
  for (const int64_t tokens : {16'384, 65'536, 700, 131'072, 3000})
    if (policy.kind != ChunkPolicy::Kind::kFixed) server.Submit(at += 10, tokens, 1);
  for (int i = 0; i < batch.prompts; ++i) server.Submit(kBegin, batch.tokens, 1);
  server.Run();
  return server.now() - kBegin;
}

double Fixed(const Batch& batch, int64_t tokens) {
  return Seconds(batch, {.kind = ChunkPolicy::Kind::kFixed}, tokens);
}

double Quadratic(const Batch& batch, int64_t first, double smoothing) {
  return Seconds(batch, {.kind = ChunkPolicy::Kind::kQuadratic, .smoothing = smoothing}, first);
}

double BestFixed(const Batch& batch) {
  double best = std::numeric_limits<double>::infinity();
  for (const int64_t tokens : {512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384})
    best = std::min(best, Fixed(batch, tokens));
  return best;
}

double BestQuadratic(const Batch& batch) {
  double best = std::numeric_limits<double>::infinity();
  for (const int64_t first : {2048, 4096, 6144, 8192, 12288, 16384})
    for (const double smoothing : {0.55, 0.65, 0.75, 0.85, 1.0})
      best = std::min(best, Quadratic(batch, first, smoothing));
  return best;
}

TEST(PlannedBatchesTest, PlannedIsNeverMuchBehindAnyTunedOne) {
  double worst = 0;
  std::printf("time of others / planned:\n%3s %8s %8s %12s %12s %12s %12s\n", "P", "prompts",
              "tokens", "fixed 8192", "best of 10", "12288, 0.75", "best of 30");
  for (const int stages : {2, 4, 8, 16}) {
    for (const Batch& batch : std::vector<Batch>{{stages, 1, 32'768},
                                                 {stages, 1, 131'072},
                                                 {stages, 1, 1'048'576},
                                                 {stages, 4, 32'768},
                                                 {stages, 4, 131'072},
                                                 {stages, 12, 32'768}}) {
      const double planned = Seconds(batch, {.kind = ChunkPolicy::Kind::kPlanned}, 16384);
      const double fixed = BestFixed(batch) / planned;
      const double quadratic = BestQuadratic(batch) / planned;
      worst = std::max(worst, 1 / std::min(fixed, quadratic));
      std::printf("%3d %8d %8ld %12.3f %12.3f %12.3f %12.3f\n", batch.stages, batch.prompts,
                  static_cast<long>(batch.tokens), Fixed(batch, 8192) / planned, fixed,
                  Quadratic(batch, 12288, 0.75) / planned, quadratic);
    }
  }
  std::printf("at worst %.4f of the best\n", worst);
  EXPECT_LE(worst, 1.005);
}

}  // namespace
}  // namespace longspan::engine
