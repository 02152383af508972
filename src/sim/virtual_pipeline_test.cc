#include "sim/virtual_pipeline.h"

#include <gtest/gtest.h>

namespace longspan::sim {
namespace {

constexpr Time kMs = 1'000'000;

// A chunk of `rows` literal tokens.
plan::StepPlan ChunkPlan(uint64_t number, int64_t rows, bool ends_group = true) {
  plan::StepPlan plan;
  plan.number = {number};
  plan.ends_group = ends_group;
  plan.slices.push_back({.sequence = {1}});
  plan.slices[0].tokens.assign(static_cast<size_t>(rows), plan::TokenSource::Literal(1));
  return plan;
}

// A millisecond for every row.
PipelineTimes RowTimes(double transfer_s = 0, double latency_s = 0) {
  return {.compute_s = [](const plan::StepPlan& plan, int, int) { return 1e-3 * plan.rows(); },
          .transfer_s = [=](const plan::StepPlan&, int) { return transfer_s; },
          .latency_s = [=](int) { return latency_s; }};
}

TEST(VirtualPipelineTest, PlansFollowEachOtherThroughTheStages) {
  VirtualPipeline pipeline(3, 1, RowTimes());
  Time end = 0;
  for (const auto& [number, rows] : {std::pair<uint64_t, int64_t>{1, 2}, {2, 5}, {3, 1}})
    end = pipeline.Add(ChunkPlan(number, rows), 0).back().timing.end;
  // The sum, and the longest one for each further stage.
  EXPECT_EQ(end, (8 + 2 * 5) * kMs);
}

TEST(VirtualPipelineTest, MatchesTheRecurrenceWithLoops) {
  for (const int stages : {2, 4}) {
    for (const int loops : {2, 4}) {
      const auto groups = plan::FullGroups(11, plan::GroupSize(stages, loops));
      const auto rows = [](size_t chunk) { return static_cast<int64_t>(3 + chunk * 7 % 5); };
      const double want = plan::PipelineMakespan(
          groups, stages, loops,
          [&](size_t chunk, int, int) { return 1e-3 * static_cast<double>(rows(chunk)); });
      VirtualPipeline pipeline(stages, loops, RowTimes());
      Time end = 0;
      size_t reports = 0;
      for (size_t chunk = 0; chunk < groups.size(); ++chunk)
        for (const StageWork& work :
             pipeline.Add(ChunkPlan(chunk + 1, rows(chunk), groups[chunk]), 0)) {
          end = std::max(end, work.timing.end);
          ++reports;
        }
      EXPECT_NEAR(static_cast<double>(end) * 1e-9, want, 1e-9) << stages << " x " << loops;
      EXPECT_EQ(reports, groups.size() * static_cast<size_t>(stages));
    }
  }
}

TEST(VirtualPipelineTest, InputTravelsWhileStagesCompute) {
  VirtualPipeline pipeline(2, 1, RowTimes(3e-3, 1e-3));
  pipeline.Add(ChunkPlan(1, 2), 0);
  const auto done = pipeline.Add(ChunkPlan(2, 2), 0);
  // Two and two milliseconds at the first stage; the link is free again after five, then three for
  // the second one, and one on the way.
  EXPECT_EQ(done.back().timing.end, (2 + 3 + 3 + 1 + 2) * kMs);
  EXPECT_EQ(done.back().timing.wait, 1 * kMs);
}

TEST(VirtualPipelineTest, ASampledTokenIsWaitedFor) {
  VirtualPipeline pipeline(2, 1, RowTimes(0, 1e-3));
  pipeline.Add(ChunkPlan(1, 4), 0);
  plan::StepPlan decode = ChunkPlan(2, 1);
  decode.slices[0].tokens = {plan::TokenSource::Sampled({1}, 0)};
  const auto done = pipeline.Add(decode, 0);
  // 4 + 1 + 4 through both, 1 back, then 1 + 1 + 1.
  EXPECT_EQ(done.back().timing.end, 13 * kMs);
}

TEST(VirtualPipelineTest, APlanThatComesLateStartsLate) {
  VirtualPipeline pipeline(1, 1, RowTimes());
  EXPECT_EQ(pipeline.Add(ChunkPlan(1, 2), 7 * kMs).back().timing.end, 9 * kMs);
}

}  // namespace
}  // namespace longspan::sim
