// What the pipeline has done since the engine began, as numbers that only grow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace longspan::engine {

struct StepRecord;

// How often a duration fell under each of a fixed row of bounds.
class DurationHistogram {
 public:
  // Upper bounds in nanoseconds, each 2 to 2.5 times the one before: 0.1 ms to 500 s. Longer ones
  // fall into one bucket more.
  static constexpr size_t kBounds = 21;
  static const std::array<int64_t, kBounds>& bounds();

  void Add(int64_t nanoseconds);

  int64_t count() const { return count_; }
  int64_t sum() const { return sum_; }
  // By bucket, not cumulated.
  const std::array<int64_t, kBounds + 1>& buckets() const { return buckets_; }
  // The duration that a share of them (0 to 1) does not exceed, by straight lines within buckets; 0
  // where there are none.
  double Quantile(double share) const;

 private:
  std::array<int64_t, kBounds + 1> buckets_{};
  int64_t count_ = 0;
  int64_t sum_ = 0;
  int64_t longest_ = 0;
};

// Nanoseconds of a rank's compute thread while the pipeline had work.
struct RankCounters {
  int64_t kernels = 0;
  int64_t wait = 0;  // within steps, for data or a token; part of the bubble
  int64_t transfer = 0;
  int64_t host = 0;
  int64_t bubble = 0;      // all that is neither kernels nor transfer nor host work
  int64_t sent_bytes = 0;  // over its boundary to the next stage
};

struct Counters {
  int64_t plans = 0;               // computed by all stages
  int64_t rows = 0;                // of those
  int64_t active = 0;              // nanoseconds with a plan in flight
  int64_t leader_work = 0;         // nanoseconds of making, submitting and committing those plans
  DurationHistogram plan_latency;  // from a plan's submission to its commit
  std::vector<RankCounters> ranks;
};

// Keeps them. Times are on the engine's clock; those that stages report count by their lengths
// only, so that their clocks need not be the same. Not thread-safe.
class CounterBook {
 public:
  explicit CounterBook(size_t ranks) { counters_.ranks.resize(ranks); }

  // Plans are in flight from `now` on, or no more. Calls that change nothing are ignored.
  void SetActive(bool active, int64_t now);
  void Add(const StepRecord& step);

  // As of `now`; steps in flight count as bubble until they are reported.
  Counters Read(int64_t now) const;

 private:
  Counters counters_;
  bool active_ = false;
  int64_t active_since_ = 0;
};

}  // namespace longspan::engine
