// How long the real pipeline takes over waits of known length: the engine, its transports, its
// threads, everything but kernels, against what the order of work allows.
//
// A prompt's time counts from Submit to OnFinish, so what the leader does is in it. A machine that
// others use wakes threads late, which only ever adds. So each figure is the best of up to three
// runs, and a later run waits twice as long for everything, which leaves lateness a smaller share;
// the line that is printed says which run it was. Where all three fail, threads that only wait and
// wake each other up tell whether it was the machine: if those are late as well, nothing can be
// said about the pipeline, and the test says so.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <semaphore>
#include <sys/prctl.h>
#include <thread>

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

// The same waits in the same order, by threads that do nothing else: what the machine can do now.
double MeasureBareThreads(const Work& work, double mean_seconds) {
  using Clock = std::chrono::steady_clock;
  std::vector<plan::PlanLoop> order;
  plan::LoopOrder loops(work.loops);
  const auto groups = plan::FullGroups(work.chunks, plan::GroupSize(kRanks, work.loops));
  for (size_t chunk = 0; chunk < groups.size(); ++chunk)
    for (const plan::PlanLoop& item : loops.Add({chunk}, groups[chunk])) order.push_back(item);
  const std::vector<double> shares = work.Shares();
  // Items that the rank before has passed on.
  std::vector<std::unique_ptr<std::counting_semaphore<>>> arrived;
  for (int rank = 0; rank < kRanks; ++rank)
    arrived.push_back(std::make_unique<std::counting_semaphore<>>(0));
  const Clock::time_point begin = Clock::now();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      prctl(PR_SET_TIMERSLACK, 1UL);
      Clock::duration late{};
      Clock::time_point woke;
      for (const plan::PlanLoop& item : order) {
        if (rank > 0 || item.loop > 0) arrived[rank]->acquire();
        // As the timed backend does.
        Clock::time_point until = Clock::now();
        if (until - woke < std::chrono::milliseconds(1)) until -= late;
        until += std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(shares[item.plan.value] * mean_seconds));
        std::this_thread::sleep_until(until);
        woke = Clock::now();
        late = woke - until;
        if (rank + 1 < kRanks || item.loop + 1 < work.loops)
          arrived[(rank + 1) % kRanks]->release();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

enum class Verdict { kWithin, kOutside, kMachineIsBusy };

// `predicted`: seconds for chunks of one second on average.
Verdict Judge(const Work& work, double predicted, double tolerance) {
  double bare = HUGE_VAL;
  for (const double mean : kMeanSeconds) {
    const double over = Measure(work, mean) / (mean * predicted) - 1;
    fmt::print("{} of {:.0f} ms: {:.1f} ms predicted, {:+.2f}%\n", work.ToString(), mean * 1e3,
               predicted * mean * 1e3, 100 * over);
    if (std::abs(over) <= tolerance) return Verdict::kWithin;
    if (over < 0) return Verdict::kOutside;
    bare = std::min(bare, MeasureBareThreads(work, mean) / (mean * predicted) - 1);
    fmt::print("  threads that only wait: {:+.2f}%\n", 100 * bare);
  }
  return bare > tolerance / 2 ? Verdict::kMachineIsBusy : Verdict::kOutside;
}

// Skips the rest of the calling test where the machine is too busy to say.
#define LONGSPAN_EXPECT_SECONDS(work, predicted, tolerance)         \
  do {                                                              \
    const Verdict verdict = Judge(work, predicted, tolerance);      \
    if (verdict == Verdict::kMachineIsBusy)                         \
      GTEST_SKIP() << (work).ToString() << ": the machine is busy"; \
    EXPECT_EQ(verdict, Verdict::kWithin) << (work).ToString();      \
  } while (false)

class UnloopedPipelineTest : public ::testing::TestWithParam<bool> {};

TEST_P(UnloopedPipelineTest, TakesTheSumAndTheLongestPerFurtherRank) {
  const bool growing = GetParam();
  const Work work = {.loops = 1, .chunks = 32, .growing = growing};
  const std::vector<double> chunks = work.Shares();
  const double sum = std::accumulate(chunks.begin(), chunks.end(), 0.0);
  const double longest = *std::max_element(chunks.begin(), chunks.end());
  ASSERT_NEAR(sum, 32, 1e-9);
  ASSERT_NEAR(longest, growing ? 1.75 : 1, 1e-9);
  LONGSPAN_EXPECT_SECONDS(work, sum + (kRanks - 1) * longest, 0.015);
}

INSTANTIATE_TEST_SUITE_P(Chunks, UnloopedPipelineTest, ::testing::Bool());

class LoopedPipelineTest : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(LoopedPipelineTest, TakesWhatTheRecurrenceSays) {
  const auto [loops, chunks, growing] = GetParam();
  const Work work = {.loops = loops, .chunks = chunks, .growing = growing};
  const std::vector<double> shares = work.Shares();
  const double predicted =
      plan::PipelineMakespan(plan::FullGroups(chunks, plan::GroupSize(kRanks, loops)), kRanks,
                             loops, [&](size_t chunk, int, int) { return shares[chunk]; });
  LONGSPAN_EXPECT_SECONDS(work, predicted, 0.03);
}

INSTANTIATE_TEST_SUITE_P(Chunks, LoopedPipelineTest,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::Values(1, 5, 32, 33), ::testing::Bool()));

}  // namespace
}  // namespace longspan::testing
