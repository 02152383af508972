#include "sim/virtual_pipeline.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace longspan::sim {
namespace {

Time Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

void AddSpan(plan::StageTiming& timing, plan::SpanKind kind, Time start, Time end) {
  if (end > start) timing.spans.push_back({kind, start, end});
}

}  // namespace

VirtualPipeline::VirtualPipeline(int stages, int loops, PipelineTimes times)
    : stages_(stages),
      loops_(stages == 1 ? 1 : loops),
      times_(std::move(times)),
      order_(loops_),
      free_(static_cast<size_t>(stages), 0),
      link_free_(static_cast<size_t>(stages), 0) {}

std::vector<StageWork> VirtualPipeline::Add(const plan::StepPlan& plan, Time now) {
  Pending& pending = pending_[plan.number.value];
  pending.plan = plan;
  pending.came = now;
  pending.timings.resize(static_cast<size_t>(stages_));
  std::vector<StageWork> done;
  for (const plan::PlanLoop& item : order_.Add(plan.number, plan.ends_group)) Compute(item, done);
  std::stable_sort(done.begin(), done.end(), [](const StageWork& a, const StageWork& b) {
    return a.timing.end < b.timing.end;
  });
  return done;
}

void VirtualPipeline::Compute(const plan::PlanLoop& item, std::vector<StageWork>& done) {
  const auto found = pending_.find(item.plan.value);
  LONGSPAN_CHECK(found != pending_.end(), "plan {} is not there", item.plan.value);
  Pending& pending = found->second;
  arrival_ = pending.came;
  if (item.loop == 0) {
    arrival_ = std::max(arrival_, TokensReady(pending.plan));
  } else {
    arrival_ = std::max(arrival_, back_.at(item.plan.value));
  }
  for (int stage = 0; stage < stages_; ++stage) ComputeStage(pending, stage, item.loop);
  back_[item.plan.value] = arrival_;
  if (item.loop + 1 < loops_) return;
  // Tokens are small and go back at once; a stage that is alone has them anyway.
  const Time end = pending.timings.back().end;
  sampled_[item.plan.value] = end + (stages_ == 1 ? 0 : Nanoseconds(times_.latency_s(stages_ - 1)));
  for (int stage = 0; stage < stages_; ++stage)
    done.push_back({item.plan, stage, std::move(pending.timings[static_cast<size_t>(stage)])});
  back_.erase(item.plan.value);
  pending_.erase(found);
}

Time VirtualPipeline::TokensReady(const plan::StepPlan& plan) const {
  Time ready = 0;
  for (const plan::Slice& slice : plan.slices) {
    // Only the first of a slice's tokens can be a sampled one that is new.
    for (const plan::TokenSource& token : slice.tokens)
      if (!token.is_literal()) ready = std::max(ready, sampled_.at(token.plan.value));
  }
  return ready;
}

void VirtualPipeline::ComputeStage(Pending& pending, int stage, int loop) {
  const auto index = static_cast<size_t>(stage);
  plan::StageTiming& timing = pending.timings[index];
  Time& free = free_[index];
  const Time taken = std::max(free, pending.came);
  const Time start = std::max(free, arrival_);
  const Time end = start + Nanoseconds(times_.compute_s(pending.plan, stage, loop));
  if (loop == 0) {
    timing.start = taken;
    timing.intake = {.taken = pending.came, .tables = pending.came, .posted = pending.came};
  }
  AddSpan(timing, plan::SpanKind::kIdle, free, taken);
  AddSpan(timing, plan::SpanKind::kWait, taken, start);
  AddSpan(timing, plan::SpanKind::kKernels, start, end);
  timing.wait += start - taken;
  timing.kernels += end - start;
  timing.cpu += end - start;
  timing.end = end;
  free = end;
  const bool last = stage + 1 == stages_;
  if (last && loop + 1 == loops_) return;
  Time& link = link_free_[index];
  link = std::max(link, end) + Nanoseconds(times_.transfer_s(pending.plan, stage));
  arrival_ = link + Nanoseconds(times_.latency_s(stage));
}

}  // namespace longspan::sim
