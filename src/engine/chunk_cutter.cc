#include "engine/chunk_cutter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "plan/chunk_planner.h"
#include "plan/quadratic_chunks.h"

namespace longspan::engine {
namespace {

// Costs that differ by less give plans that are as good.
constexpr double kLeastChange = 0.03;
// The same for shares of the drain: the longest chunk goes with their root.
constexpr double kShareChange = 1.5;
// Plans stay a little below the limit, so that one more decode row does not undo them.
constexpr double kRoom = 0.98;
constexpr double kLeastRoom = 0.9;
// Shorter pages are planned several at a time. Chunks that are shorter than a page end at multiples
// of this, or are shorter still.
constexpr int64_t kLeastGrain = 16;

int64_t Grain(int64_t page_size, int64_t chunk_tokens) {
  const int64_t grain = (kLeastGrain + page_size - 1) / page_size * page_size;
  return grain <= chunk_tokens ? grain : std::min(kLeastGrain, chunk_tokens);
}

double Slowest(const plan::PipelineCost& costs, const plan::StepWork& work) {
  double slowest = 0;
  for (int rank = 0; rank < costs.shape.ranks; ++rank) {
    double seconds = 0;
    for (int loop = 0; loop < costs.shape.loops; ++loop)
      seconds += costs.at(rank, loop).Seconds(work);
    slowest = std::max(slowest, seconds);
  }
  return slowest;
}

}  // namespace

ChunkCutter::ChunkCutter(const ChunkPolicy& policy, int64_t chunk_tokens, int page_size)
    : policy_(policy), fixed_{chunk_tokens}, page_size_(page_size) {}

int64_t ChunkCutter::NextEnd(Sequence& sequence, const Limits& limits, double drain_share,
                             const plan::PipelineFit& fit) {
  const int64_t begin = sequence.scheduled;
  const int64_t end = sequence.prefill_length();
  switch (policy_.kind) {
    case ChunkPolicy::Kind::kPlanned: {
      if (!IsPlanned(sequence, limits, drain_share)) Plan(sequence, limits, drain_share, fit);
      const std::vector<int64_t>& ends = sequence.planned.ends;
      const int64_t planned = *std::upper_bound(ends.begin(), ends.end(), begin);
      if (planned <= begin + limits.left) return planned;
      // Others have the rest of the step. Chunks of less than a page end where they must.
      const int64_t multiple = page_size_ <= limits.chunk_tokens ? page_size_ : 1;
      return std::max(begin, (begin + limits.left) / multiple * multiple);
    }
    case ChunkPolicy::Kind::kQuadratic:
      return std::min(QuadraticEnd(sequence, fit), begin + limits.left);
    case ChunkPolicy::Kind::kFixed:
      break;
  }
  return fixed_.NextEnd(begin, end, limits.left);
}

int64_t ChunkCutter::ExpectedEnd(const Sequence& sequence) const {
  const int64_t begin = sequence.scheduled;
  const std::vector<int64_t>& ends = sequence.planned.ends;
  const auto next = std::upper_bound(ends.begin(), ends.end(), begin);
  if (policy_.kind == ChunkPolicy::Kind::kPlanned && next != ends.end())
    return std::min(*next, sequence.prefill_length());
  return fixed_.NextEnd(begin, sequence.prefill_length(), fixed_.size);
}

double ChunkCutter::StepSeconds(const Sequence& first, double work_s,
                                const plan::PipelineFit& fit) const {
  if (policy_.kind != ChunkPolicy::Kind::kPlanned) return std::numeric_limits<double>::infinity();
  const plan::PipelineShape& shape = fit.cost().shape;
  if (shape.ranks == 1) return std::numeric_limits<double>::infinity();
  double per_step = 0;
  for (const plan::ChunkCost& cost : fit.rank_costs()) per_step = std::max(per_step, cost.per_step);
  // Of n equal steps of work_s / n + per_step and a drain of (P - 1) / V of one, the best.
  const double drain_steps = (shape.ranks - 1.0) / shape.loops;
  const double best = per_step + std::sqrt(per_step * work_s / drain_steps);
  return std::max(first.planned.longest_s, best);
}

bool ChunkCutter::IsPlanned(const Sequence& sequence, const Limits& limits,
                            double drain_share) const {
  const PlannedChunks& planned = sequence.planned;
  if (planned.ends.empty() || planned.ends.back() != sequence.prefill_length()) return false;
  if (planned.costs_number != costs_number_) return false;
  const double share = drain_share / planned.drain_share;
  if (share > kShareChange || share < 1 / kShareChange) return false;
  // Chunks could be longer by now.
  if (planned.max_seconds < kLeastRoom * limits.seconds) return false;
  if (limits.ahead_s > kShareChange * std::max(planned.ahead_s, planned.longest_s)) return false;
  // At a border of the plan, or at its begin.
  return sequence.scheduled == planned.begin ||
         std::binary_search(planned.ends.begin(), planned.ends.end(), sequence.scheduled);
}

void ChunkCutter::Plan(Sequence& sequence, const Limits& limits, double drain_share,
                       const plan::PipelineFit& fit) {
  // The newest costs for all that are planned from now on.
  if (costs_.stages.empty()) costs_ = fit.cost();
  const double max_seconds = kRoom * limits.seconds;
  plan::ChunkSequence chunks =
      plan::PlanChunks(costs_, {.begin = sequence.scheduled,
                                .end = sequence.prefill_length(),
                                .page_size = Grain(page_size_, limits.chunk_tokens),
                                .max_tokens = limits.chunk_tokens,
                                .max_seconds = max_seconds,
                                .longest_before_s = limits.ahead_s,
                                .drain_share = drain_share});
  sequence.planned = {.begin = sequence.scheduled,
                      .ends = std::move(chunks.ends),
                      .longest_s = chunks.longest_s,
                      .drain_share = drain_share,
                      .ahead_s = limits.ahead_s,
                      .max_seconds = max_seconds,
                      .costs_number = costs_number_};
}

int64_t ChunkCutter::QuadraticEnd(const Sequence& sequence, const plan::PipelineFit& fit) const {
  const int64_t begin = sequence.scheduled;
  const int64_t end = sequence.prefill_length();
  int64_t tokens = fixed_.size;
  if (begin > sequence.prefill_begin) {
    // What the algorithm measures when it starts, of the first stage and without a prefix, is
    // known by now. The first of them is dropped there.
    std::vector<plan::LengthSeconds> probes(1);
    for (const int64_t length : plan::QuadraticChunks::ProbeLengths(fixed_.size))
      probes.push_back({length, fit.rank_costs().front().Seconds(0, length)});
    const auto time = plan::QuadraticChunks::Fit(probes);
    if (time.ok())
      tokens = plan::QuadraticChunks(*time, {.first_tokens = fixed_.size,
                                             .smoothing = policy_.smoothing,
                                             .page_size = page_size_,
                                             .context_length = policy_.context_length})
                   .NextTokens(begin);
  }
  return std::min(end, begin + tokens);
}

void ChunkCutter::OnMeasured(const plan::StepWork& work, const plan::PipelineFit& fit) {
  if (policy_.kind != ChunkPolicy::Kind::kPlanned || costs_.stages.empty()) return;
  // Before anything was predicted, a difference is news and no error.
  const double error = fit.error();
  const double allowed = error < 1 ? std::max(kLeastChange, error) : kLeastChange;
  const auto has_left = [&](const plan::StepWork& of) {
    return std::abs(std::log(fit.Seconds(of) / Slowest(costs_, of))) > allowed;
  };
  // A short step at the begin of a prompt tells what cutting costs.
  plan::StepWork short_step;
  short_step.AddChunk(0, page_size_, fit.top_k());
  if (!has_left(work) && !has_left(short_step)) return;
  costs_ = fit.cost();
  ++costs_number_;
}

}  // namespace longspan::engine
