// How long the real pipeline takes over waits of known length: the engine, its transports, its
// threads, everything but kernels, against what the order of work allows.
//
// A prompt's time counts from Submit to OnFinish, so what the leader does is in it. A machine that
// others use wakes threads late, which only ever adds. So each figure is the best of up to three
// runs, and a later run waits twice as long for everything, which leaves lateness a smaller share;
// the line that is printed says which run it was.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/pipeline_schedule.h"
#include "tests/engine/engine_harness.h"
#include "tests/engine/timed_engine.h"

namespace longspan::testing {
namespace {

constexpr int kRanks = 8;
constexpr int64_t kRows = 16;  // of a chunk
// Of a chunk on a rank, all loops together, on average; run by run.
constexpr double kMeanSeconds[] = {16e-3, 32e-3, 64e-3};

struct Work {
  int loops;
  int chunks;
  bool growing;  // linearly, the last one takes seven times as long as the first

  // One layer for every rank and loop.
  support::TimedCost CostOf(double mean_seconds) const {
    const double layer = mean_seconds / loops;
    if (!growing || chunks == 1) return {.per_call = layer};
    // Chunk k costs first x (1 + 6 k / (chunks - 1)), from the pairs of its rows and its prefix.
    const double first = layer / 4;
    const double per_pair = first * 6 / (chunks - 1) / (2.0 * kRows * kRows);
    return {.per_call = first - per_pair * kRows * kRows, .per_pair = per_pair};
  }
  // Of every chunk, in one loop on one rank; the mean over chunks of the sum over loops is 1.
  std::vector<double> Shares() const {
    std::vector<double> shares;
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      shares.push_back(CostOf(1).Layer(chunk * kRows, kRows));
    return shares;
  }
  std::string ToString() const {
    return fmt::format("{} loops, {} {} chunks", loops, chunks, growing ? "growing" : "equal");
  }
};

class FinishSink : public engine::OutputSink {
 public:
  void OnFinish(plan::SequenceId, engine::FinishReason, const engine::FinishInfo& info) override {
    seconds = info.finish_s;
  }
  double seconds = 0;
};

double Measure(const Work& work, double mean_seconds) {
  const auto engine =
      StartTimed({.stages = kRanks,
                  .virtual_stages = work.loops,
                  .layers = kRanks * work.loops,
                  .cost = work.CostOf(mean_seconds),
                  .scheduler = {.chunk_tokens = kRows, .max_running = 4, .reuse_prefixes = false}});
  FinishSink sink;
  const auto id = engine->Submit(
      {.prompt = RandomIds(work.chunks * kRows, kTimedVocab, 1), .max_tokens = 0}, &sink);
  EXPECT_TRUE(id.ok());
  EXPECT_TRUE(engine->RunUntilIdle().ok());
  return sink.seconds;
}

// `predicted`: for chunks of one second on average.
void ExpectRatio(const Work& work, double predicted, double tolerance) {
  double closest = HUGE_VAL;
  for (const double mean : kMeanSeconds) {
    const double over = Measure(work, mean) / (mean * predicted) - 1;
    fmt::print("{} of {:.0f} ms: {:.1f} ms predicted, {:+.2f}%\n", work.ToString(), mean * 1e3,
               predicted * mean * 1e3, 100 * over);
    if (std::abs(over) < std::abs(closest)) closest = over;
    if (std::abs(closest) <= tolerance) break;
  }
  EXPECT_NEAR(closest, 0, tolerance) << work.ToString();
}

TEST(TimedPipelineTest, WithoutLoopsTakesTheSumAndTheLongestPerFurtherRank) {
  for (const bool growing : {false, true}) {
    const Work work = {.loops = 1, .chunks = 32, .growing = growing};
    const std::vector<double> chunks = work.Shares();
    const double sum = std::accumulate(chunks.begin(), chunks.end(), 0.0);
    const double longest = *std::max_element(chunks.begin(), chunks.end());
    ASSERT_NEAR(sum, 32, 1e-9);
    ASSERT_NEAR(longest, growing ? 1.75 : 1, 1e-9);
    ExpectRatio(work, sum + (kRanks - 1) * longest, 0.015);
  }
}

class LoopedPipelineTest : public ::testing::TestWithParam<int> {};

TEST_P(LoopedPipelineTest, TakesWhatTheRecurrenceSays) {
  for (const int chunks : {1, 5, 32, 33}) {
    for (const bool growing : {false, true}) {
      const Work work = {.loops = GetParam(), .chunks = chunks, .growing = growing};
      const std::vector<double> shares = work.Shares();
      const double predicted = plan::PipelineMakespan(
          plan::FullGroups(chunks, plan::GroupSize(kRanks, work.loops)), kRanks, work.loops,
          [&](size_t chunk, int, int) { return shares[chunk]; });
      ExpectRatio(work, predicted, 0.03);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Loops, LoopedPipelineTest, ::testing::Values(2, 4));

}  // namespace
}  // namespace longspan::testing
