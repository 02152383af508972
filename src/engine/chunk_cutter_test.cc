#include "engine/chunk_cutter.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace longspan::engine {
namespace {

constexpr plan::ChunkCost kCost = {.per_step = 4e-3, .per_token = 5e-6, .per_pair = 4e-11};

plan::PipelineCost Stages(int stages, const plan::ChunkCost& cost) {
  return {.shape = {.ranks = stages},
          .stages = std::vector<plan::ChunkCost>(static_cast<size_t>(stages), cost)};
}

Sequence Prompt(size_t tokens) {
  Sequence sequence;
  sequence.request.prompt.resize(tokens);
  return sequence;
}

// The machine is three times slower than its figures, which the first chunk tells. From the second
// one on no chunk takes longer than it may.
TEST(ChunkCutterTest, OneMeasurementCorrectsAPriorThatIsThreeTimesOff) {
  constexpr double kMost = 0.008;
  plan::PipelineFit fit(Stages(4, plan::Scaled(kCost, 1.0 / 3)));
  ChunkCutter cutter({.kind = ChunkPolicy::Kind::kPlanned}, 1 << 15, 64);
  Sequence sequence = Prompt(1 << 16);
  const ChunkCutter::Limits limits = {.chunk_tokens = 1 << 15, .left = 1 << 15, .seconds = kMost};
  for (int chunk = 0; chunk < 3; ++chunk) {
    const int64_t begin = sequence.scheduled;
    const int64_t end = cutter.NextEnd(sequence, limits, 1, fit);
    ASSERT_GT(end, begin);
    const double seconds = kCost.Seconds(begin, end);
    if (chunk == 0) {
      EXPECT_GT(seconds, 1.5 * kMost);
    } else {
      EXPECT_LE(seconds, 1.01 * kMost) << chunk;
    }
    sequence.scheduled = end;
    plan::StepWork work;
    work.AddChunk(begin, end, 0);
    fit.Add(work, std::vector<double>(4, seconds));
    cutter.OnMeasured(work, fit);
  }
}

// The published algorithm keeps off the end of the context: a chunk there is shorter.
TEST(ChunkCutterTest, TheQuadraticPolicyKnowsTheContext) {
  const plan::PipelineFit fit(Stages(2, kCost));
  const auto end = [&](int64_t context_length) {
    ChunkCutter cutter({.kind = ChunkPolicy::Kind::kQuadratic, .context_length = context_length},
                       4096, 64);
    Sequence sequence = Prompt(40'000);
    sequence.scheduled = 8192;
    return cutter.NextEnd(sequence, {.chunk_tokens = 4096, .left = 4096}, 1, fit);
  };
  const int64_t far = end(1 << 20);
  EXPECT_GT(far, 8192 + 2048);
  EXPECT_LE(end(8192 + 2048), 8192 + 2048);
  EXPECT_EQ(end(40'000), far);
}

}  // namespace
}  // namespace longspan::engine
