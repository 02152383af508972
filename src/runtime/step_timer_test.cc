#include "runtime/step_timer.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::runtime {
namespace {

using plan::SpanKind;
using ::testing::ElementsAre;

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1000 * kUs;

int64_t Now() { return base::SteadyClock().Now().count(); }
void Sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

// Of the spans that are there by intention, each change once; a busy machine makes short ones of
// host work between them.
std::vector<SpanKind> Kinds(const plan::StageTiming& timing) {
  std::vector<SpanKind> kinds;
  for (const plan::StageSpan& span : timing.spans)
    if (span.end - span.start >= kMs && (kinds.empty() || kinds.back() != span.kind))
      kinds.push_back(span.kind);
  return kinds;
}

TEST(StepTimerTest, SpansTellEverythingFromTheLastStepToTheEndOfThisOne) {
  plan::StageTiming timing;
  const int64_t last_end = Now() - 9 * kMs;
  StepTimer timer(timing, {.last_end = last_end, .awaited = last_end + 3 * kMs});
  timer.Wait([] { Sleep(); });
  EXPECT_EQ(timer.Kernels([] { return Sleep(), 7; }), 7);
  timer.Kernels([] { Sleep(); });
  Sleep();
  (void)timer.Send(100, [] { return Sleep(), comm::Transfer(); });
  timer.Stop();
  EXPECT_THAT(Kinds(timing), ElementsAre(SpanKind::kHost, SpanKind::kIdle, SpanKind::kWait,
                                         SpanKind::kKernels, SpanKind::kHost, SpanKind::kTransfer));
  EXPECT_EQ(timing.spans.front().start, last_end);
  for (size_t i = 1; i < timing.spans.size(); ++i) {
    EXPECT_GE(timing.spans[i].start, timing.spans[i - 1].end) << i;
    EXPECT_LT(timing.spans[i].start, timing.spans[i - 1].end + kMs) << i;
  }
  EXPECT_LE(timing.spans.back().end, timing.end);
  EXPECT_GE(timing.kernels, 4 * kMs);
  EXPECT_LT(timing.cpu, 2 * kMs);
  EXPECT_GE(timing.transfer, 2 * kMs);
  ASSERT_EQ(timing.sends.size(), 1u);
  EXPECT_EQ(timing.sends[0].bytes, 100);
  EXPECT_GE(timing.sends[0].posted, timing.start);
}

TEST(StepTimerTest, AThreadsFirstStepHasNothingBeforeIt) {
  plan::StageTiming timing;
  StepTimer timer(timing, {.last_end = 0, .awaited = Now() - kMs});
  timer.Kernels([] { Sleep(); });
  timer.Stop();
  EXPECT_THAT(Kinds(timing), ElementsAre(SpanKind::kKernels));
}

TEST(StepTimerTest, ManyShortPartsAreNoSpans) {
  plan::StageTiming timing;
  StepTimer timer(timing, {});
  // A busy machine makes some of them long, and pauses between them: those are told.
  int64_t turns = 0;
  int64_t long_turns = 0;
  int64_t begin = Now();
  for (; turns < 1000; ++turns) {
    timer.Wait([] {});
    const int64_t end = Now();
    if (end - begin >= kUs) ++long_turns;
    begin = end;
  }
  timer.Stop();
  EXPECT_GT(timing.wait, 0);
  // Each long turn is at most a span of waiting and one of host work before it; the end is host
  // work too.
  EXPECT_LE(std::ssize(timing.spans), 2 * long_turns + 1);
}

TEST(StepTimerTest, AReceiveTellsWhenTheDataCame) {
  plan::StageTiming timing;
  StepTimer timer(timing, {});
  comm::TransferSource source;
  const comm::Transfer transfer = source.transfer();
  EXPECT_EQ(transfer.done_at().count(), 0);
  source.Complete(base::OkStatus());
  Sleep();
  EXPECT_TRUE(timer.Receive(transfer, 5, 64).ok());
  timer.Stop();
  ASSERT_EQ(timing.receives.size(), 1u);
  EXPECT_EQ(timing.receives[0].posted, 5);
  EXPECT_EQ(timing.receives[0].bytes, 64);
  EXPECT_EQ(timing.receives[0].done, transfer.done_at().count());
  EXPECT_LE(timing.receives[0].done, timing.end - 2 * kMs);
}

}  // namespace
}  // namespace longspan::runtime
