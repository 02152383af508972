// A rank's intake of plans over a step log that breaks: it takes the plans of its epoch, in order,
// up to the first that is broken, foreign, repeated or missing; then it ends. It never hangs.
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "comm/in_process/in_process.h"
#include "comm/shared_memory/shared_memory.h"
#include "runtime/plan_intake.h"
#include "tests/fuzz/frame_mutator.h"
#include "tests/fuzz/sample_plans.h"

namespace longspan::testing {
namespace {

constexpr uint32_t kEpoch = 3;
constexpr uint64_t kPlans = 12;

// One rank alone: no residual streams.
runtime::RankConfig Config() {
  return {.epoch = {kEpoch},
          .ranges = {{0, 1}},
          .page_size = kSamplePageSize,
          .max_rows = 64,
          .max_slices = 8,
          .max_context = 256,
          .beat_every_ms = 20,
          .peer_timeout_ms = 10000};
}

std::vector<Bytes> PlansOf(uint32_t epoch) {
  std::vector<Bytes> plans;
  for (uint64_t number = 1; number <= kPlans; ++number)
    plans.push_back(runtime::EncodePlan(SamplePlan(number, epoch)));
  return plans;
}

struct Taken {
  uint64_t plans = 0;
  base::Status end;
};

// Writes the frames into a log and takes what the intake gives of them.
Taken Take(comm::JournalEnds log, const std::vector<Bytes>& frames) {
  auto [leader, channel] = comm::CreateInProcessChannelPair();
  runtime::RankLinks links;
  links.leader = std::move(channel);
  links.plans = std::move(log.readers[0]);
  const auto slots = runtime::ResidualSlots::Create(backend::reference::ReferenceBackend(), 3, 64,
                                                    8, tensor::DType::kF32);
  EXPECT_TRUE(slots.ok());
  runtime::PlanIntake intake(Config(), kSamplePages, links, **slots);
  for (const Bytes& frame : frames) (void)log.writer->Append(frame);
  log.writer->Close();
  Taken taken;
  while (true) {
    const auto step = intake.Next();
    if (!step.ok()) {
      taken.end = step.status();
      return taken;
    }
    EXPECT_EQ(step->work->plan.epoch, plan::Epoch{kEpoch});
    EXPECT_EQ(step->work->plan.number, plan::PlanNumber{++taken.plans});
    (*slots)->Release(step->slot, {});
  }
}

class PlanLogFuzzTest : public ::testing::TestWithParam<bool> {
 protected:
  static comm::JournalEnds Log() {
    return GetParam() ? comm::CreateSharedMemoryJournalEnds(1).value()
                      : comm::CreateInProcessJournal(1);
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, PlanLogFuzzTest, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "SharedMemory" : "InProcess";
});

TEST_P(PlanLogFuzzTest, AWholeLogIsTakenToItsEnd) {
  const Taken taken = Take(Log(), PlansOf(kEpoch));
  EXPECT_EQ(taken.plans, kPlans);
  EXPECT_EQ(taken.end.code(), base::StatusCode::kUnavailable);
}

TEST_P(PlanLogFuzzTest, AForeignEpochIsTheEnd) {
  for (const uint32_t epoch : {kEpoch - 1, kEpoch + 1, 0u, UINT32_MAX}) {
    for (const size_t at : {0, 5, 11}) {
      auto plans = PlansOf(kEpoch);
      plans[at] = PlansOf(epoch)[at];
      const Taken taken = Take(Log(), plans);
      EXPECT_EQ(taken.plans, at);
      // Not a failure to report: this rank's epoch, or that leader's, is over.
      EXPECT_EQ(taken.end.code(), base::StatusCode::kUnavailable);
      EXPECT_NE(taken.end.message().find("epoch"), std::string::npos);
    }
  }
}

TEST_P(PlanLogFuzzTest, MissingRepeatedAndSwappedPlansAreTheEnd) {
  for (size_t at = 1; at + 1 < kPlans; ++at) {
    auto missing = PlansOf(kEpoch), repeated = missing, swapped = missing;
    missing.erase(missing.begin() + static_cast<ptrdiff_t>(at));
    repeated.insert(repeated.begin() + static_cast<ptrdiff_t>(at), repeated[at - 1]);
    std::swap(swapped[at], swapped[at + 1]);
    for (const auto& plans : {missing, repeated, swapped}) {
      const Taken taken = Take(Log(), plans);
      EXPECT_EQ(taken.plans, at);
      EXPECT_EQ(taken.end.code(), base::StatusCode::kDataLoss);
    }
  }
}

TEST_P(PlanLogFuzzTest, ABrokenFrameIsTheEndOrHarmless) {
  auto corpus = PlansOf(kEpoch);
  corpus.push_back(PlansOf(kEpoch + 1)[4]);
  corpus.push_back(runtime::EncodeBeat({{kEpoch}, {0}, 0}));
  corpus.push_back(runtime::EncodeAllocated());
  FrameMutator mutator(7, corpus);
  int ended_early = 0;
  constexpr int kLogs = 1500;
  for (int i = 0; i < kLogs && !HasFailure(); ++i) {
    auto plans = PlansOf(kEpoch);
    const size_t at = mutator.Below(kPlans);
    plans[at] = mutator.Next();
    const Taken taken = Take(Log(), plans);
    // What is harmless in itself may take a later plan its pages.
    EXPECT_GE(taken.plans, at);
    EXPECT_FALSE(taken.end.ok());
    if (taken.plans < kPlans) ++ended_early;
  }
  EXPECT_GT(ended_early, kLogs / 2);
}

}  // namespace
}  // namespace longspan::testing
