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

// Time that passes only where a test says so: a busy machine cannot stretch what is measured.
class ManualClock : public base::Clock {
 public:
  Duration Now() const override { return now_; }
  void Pass(int64_t nanoseconds) { now_ += Duration(nanoseconds); }

 private:
  Duration now_{int64_t{100} * kMs};
};

int64_t Now() { return base::SteadyClock().Now().count(); }
void Sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

MATCHER_P3(IsSpan, kind, start, end, "") {
  return arg.kind == kind && arg.start == start && arg.end == end;
}

TEST(StepTimerTest, SpansTellEverythingFromTheLastStepToTheEndOfThisOne) {
  ManualClock clock;
  const int64_t begin = clock.Now().count();
  plan::StageTiming timing;
  StepTimer timer(timing, {.last_end = begin - 9 * kMs, .awaited = begin - 6 * kMs}, clock);
  timer.Wait([&] { clock.Pass(kMs); });
  EXPECT_EQ(timer.Kernels([&] { return clock.Pass(2 * kMs), 7; }), 7);
  timer.Kernels([&] { clock.Pass(3 * kMs); });
  clock.Pass(4 * kMs);
  (void)timer.Send(100, [&] { return clock.Pass(5 * kMs), comm::Transfer(); });
  timer.Stop();
  EXPECT_THAT(timing.spans,
              ElementsAre(IsSpan(SpanKind::kHost, begin - 9 * kMs, begin - 6 * kMs),
                          IsSpan(SpanKind::kIdle, begin - 6 * kMs, begin),
                          IsSpan(SpanKind::kWait, begin, begin + kMs),
                          IsSpan(SpanKind::kKernels, begin + kMs, begin + 6 * kMs),
                          IsSpan(SpanKind::kHost, begin + 6 * kMs, begin + 10 * kMs),
                          IsSpan(SpanKind::kTransfer, begin + 10 * kMs, begin + 15 * kMs)));
  EXPECT_EQ(timing.start, begin);
  EXPECT_EQ(timing.end, begin + 15 * kMs);
  EXPECT_EQ(timing.wait, kMs);
  EXPECT_EQ(timing.kernels, 5 * kMs);
  EXPECT_EQ(timing.transfer, 5 * kMs);
  ASSERT_EQ(timing.sends.size(), 1u);
  EXPECT_EQ(timing.sends[0].bytes, 100);
  EXPECT_EQ(timing.sends[0].posted, begin + 10 * kMs);
}

TEST(StepTimerTest, ASleepingKernelTakesTimeAndNoProcessor) {
  plan::StageTiming timing;
  StepTimer timer(timing, {});
  timer.Kernels([] { Sleep(); });
  timer.Stop();
  EXPECT_GE(timing.kernels, 2 * kMs);
  EXPECT_LE(timing.cpu, timing.kernels - kMs);
}

TEST(StepTimerTest, AThreadsFirstStepHasNothingBeforeIt) {
  ManualClock clock;
  const int64_t begin = clock.Now().count();
  plan::StageTiming timing;
  StepTimer timer(timing, {.last_end = 0, .awaited = begin - kMs}, clock);
  timer.Kernels([&] { clock.Pass(kMs); });
  timer.Stop();
  EXPECT_THAT(timing.spans, ElementsAre(IsSpan(SpanKind::kKernels, begin, begin + kMs)));
}

TEST(StepTimerTest, ManyShortPartsAreNoSpans) {
  ManualClock clock;
  const int64_t begin = clock.Now().count();
  plan::StageTiming timing;
  StepTimer timer(timing, {}, clock);
  for (int turn = 0; turn < 1000; ++turn) timer.Wait([&] { clock.Pass(kUs - 1); });
  timer.Stop();
  EXPECT_EQ(timing.wait, 1000 * (kUs - 1));
  EXPECT_THAT(timing.spans, ElementsAre(IsSpan(SpanKind::kHost, begin, begin + 1000 * (kUs - 1))));
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
