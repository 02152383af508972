#include "engine/counters.h"

#include <algorithm>

#include "engine/output.h"

namespace longspan::engine {

const std::array<int64_t, DurationHistogram::kBounds>& DurationHistogram::bounds() {
  static const std::array<int64_t, kBounds> bounds = [] {
    std::array<int64_t, kBounds> list{};
    int64_t decade = 100'000;
    for (size_t i = 0; i < kBounds; ++i) {
      constexpr std::array<int64_t, 3> kTenths = {10, 20, 50};
      list[i] = decade * kTenths[i % 3] / 10;
      if (i % 3 == 2) decade *= 10;
    }
    return list;
  }();
  return bounds;
}

void DurationHistogram::Add(int64_t nanoseconds) {
  const auto bound = std::lower_bound(bounds().begin(), bounds().end(), nanoseconds);
  ++buckets_[static_cast<size_t>(bound - bounds().begin())];
  ++count_;
  sum_ += nanoseconds;
  longest_ = std::max(longest_, nanoseconds);
}

double DurationHistogram::Quantile(double share) const {
  const double wanted = share * static_cast<double>(count_);
  double below = 0;
  for (size_t i = 0; i <= kBounds; ++i) {
    const auto here = static_cast<double>(buckets_[i]);
    if (here > 0 && below + here >= wanted) {
      const auto low = static_cast<double>(i == 0 ? 0 : bounds()[i - 1]);
      const auto high =
          static_cast<double>(i < kBounds ? std::min(bounds()[i], longest_) : longest_);
      return low + (high - low) * std::max(0.0, wanted - below) / here;
    }
    below += here;
  }
  return 0;
}

void CounterBook::SetActive(bool active, int64_t now) {
  if (active && !active_) active_since_ = now;
  if (!active && active_) counters_.active += now - active_since_;
  active_ = active;
}

void CounterBook::Add(const StepRecord& step) {
  ++counters_.plans;
  for (const ComputedSlice& slice : step.slices) counters_.rows += slice.end - slice.begin;
  const LeaderTiming& leader = step.leader;
  counters_.leader_work += leader.submitted - leader.begin + leader.committed - leader.commit_begin;
  counters_.plan_latency.Add(leader.committed - leader.submitted);
  for (size_t rank = 0; rank < step.stages.size(); ++rank) {
    const plan::StageTiming& stage = step.stages[rank];
    RankCounters& counters = counters_.ranks[rank];
    counters.kernels += stage.kernels;
    counters.wait += stage.wait;
    counters.transfer += stage.transfer;
    counters.host += stage.host();
    for (const plan::BoundaryTransfer& send : stage.sends) counters.sent_bytes += send.bytes;
  }
}

Counters CounterBook::Read(int64_t now) const {
  Counters counters = counters_;
  if (active_) counters.active += now - active_since_;
  for (RankCounters& rank : counters.ranks)
    rank.bubble = std::max<int64_t>(0, counters.active - rank.kernels - rank.transfer - rank.host);
  return counters;
}

}  // namespace longspan::engine
