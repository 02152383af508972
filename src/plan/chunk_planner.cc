#include "plan/chunk_planner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "plan/chunk_cap.h"
#include "plan/pipeline_schedule.h"

namespace longspan::plan {
namespace {

constexpr int64_t kExactPages = 2048;
// Sums of the same times in another order differ by less.
constexpr double kExact = 1e-10;
constexpr double kClose = 1e-5;  // where costs are known less well than that
constexpr double kNear = 5e-4;
// Chunk passes through stages that a search looks at: some milliseconds.
constexpr int64_t kMostPasses = 600'000;
constexpr int64_t kMostPassesOfLong = 30'000;
// Plans that small changes are tried on, and prompts so short that every number of chunks is.
constexpr size_t kRefined = 24;
constexpr int64_t kShortPages = 48;

PipelineCost SaneCost(const PipelineCost& cost) {
  LONGSPAN_CHECK(static_cast<int>(cost.stages.size()) == cost.shape.stages(),
                 "a cost for every stage");
  PipelineCost sane = cost;
  for (ChunkCost& stage : sane.stages) stage = WithoutNonsense(stage);
  return sane;
}

bool IsShort(const ChunkRequest& request) {
  return request.end - request.begin <= kExactPages * request.page_size;
}

// The recurrence of PipelineMakespan for full groups, for sequences of chunks of one prompt.
class Pipeline {
 public:
  explicit Pipeline(const PipelineCost& cost)
      : cost_(cost),
        identical_(std::all_of(cost.stages.begin(), cost.stages.end(),
                               [&](const ChunkCost& s) { return s == cost.stages.front(); })),
        rank_end_(static_cast<size_t>(cost.shape.ranks)) {
    for (int rank = 0; rank < cost.shape.ranks; ++rank) {
      ChunkCost sum = cost.at(rank, 0);
      for (int loop = 1; loop < cost.shape.loops; ++loop) sum = Sum(sum, cost.at(rank, loop));
      rank_costs_.push_back(sum);
    }
  }

  bool identical() const { return identical_; }
  // Of all loops of a rank.
  const std::vector<ChunkCost>& rank_costs() const { return rank_costs_; }

  void Measure(int64_t begin, ChunkSequence& sequence);

 private:
  void FillSeconds(int64_t begin, const std::vector<int64_t>& ends);
  double Makespan(size_t chunks);

  const PipelineCost& cost_;
  bool identical_;
  std::vector<ChunkCost> rank_costs_;
  std::vector<double> rank_end_;
  std::vector<double> seconds_;  // [chunk][stage], of identical stages [chunk]
  std::vector<double> passed_;   // of a group's chunks: when it left the last rank
  std::vector<double> rank_sum_;
};

void Pipeline::FillSeconds(int64_t begin, const std::vector<int64_t>& ends) {
  const int64_t top_k = cost_.stages.front().top_k;
  seconds_.clear();
  for (const int64_t end : ends) {
    StepWork work;
    work.AddChunk(begin, end, top_k);
    if (identical_) {
      seconds_.push_back(cost_.stages.front().Seconds(work));
    } else {
      for (const ChunkCost& stage : cost_.stages) seconds_.push_back(stage.Seconds(work));
    }
    begin = end;
  }
}

double Pipeline::Makespan(size_t chunks) {
  const auto ranks = static_cast<size_t>(cost_.shape.ranks);
  const auto loops = static_cast<size_t>(cost_.shape.loops);
  const auto group = static_cast<size_t>(GroupSize(cost_.shape.ranks, cost_.shape.loops));
  const size_t stride = identical_ ? 1 : ranks * loops;
  std::fill(rank_end_.begin(), rank_end_.end(), 0.0);
  for (size_t first = 0; first < chunks; first += group) {
    const size_t last = std::min(chunks, first + group);
    passed_.assign(last - first, 0.0);
    for (size_t loop = 0; loop < loops; ++loop) {
      for (size_t chunk = first; chunk < last; ++chunk) {
        const double* seconds = &seconds_[chunk * stride + (identical_ ? 0 : loop * ranks)];
        double passed = passed_[chunk - first];
        for (size_t rank = 0; rank < ranks; ++rank) {
          passed = std::max(passed, rank_end_[rank]) + (identical_ ? *seconds : seconds[rank]);
          rank_end_[rank] = passed;
        }
        passed_[chunk - first] = passed;
      }
    }
  }
  return rank_end_.back();
}

void Pipeline::Measure(int64_t begin, ChunkSequence& sequence) {
  const size_t chunks = sequence.ends.size();
  FillSeconds(begin, sequence.ends);
  sequence.work_s = sequence.longest_s = 0;
  if (identical_) {
    for (const double s : seconds_) {
      sequence.work_s += s * cost_.shape.loops;
      sequence.longest_s = std::max(sequence.longest_s, s * cost_.shape.loops);
    }
  } else {
    rank_sum_.assign(rank_end_.size(), 0.0);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      for (size_t rank = 0; rank < rank_sum_.size(); ++rank) {
        double s = 0;
        for (size_t stage = rank; stage < cost_.stages.size(); stage += rank_sum_.size())
          s += seconds_[chunk * cost_.stages.size() + stage];
        rank_sum_[rank] += s;
        sequence.longest_s = std::max(sequence.longest_s, s);
      }
    }
    sequence.work_s = *std::max_element(rank_sum_.begin(), rank_sum_.end());
  }
  sequence.makespan_s = identical_ && cost_.shape.loops == 1
                            ? sequence.work_s + (cost_.shape.ranks - 1) * sequence.longest_s
                            : Makespan(chunks);
}

// For stages that are not alike or loop: tries plans with even times, then changes the best ones.
class Search {
 public:
  Search(const PipelineCost& cost, const ChunkRequest& request, Pipeline& pipeline)
      : cost_(cost),
        request_(request),
        pipeline_(pipeline),
        capper_(SlowestRank(pipeline, request), request) {}

  ChunkSequence Run() {
    const double most = request_.max_seconds;
    if (most < capper_.least_cap()) {
      // Nothing to choose: pages where they are above it, else as long as can be.
      TryEnds(capper_.Ends(most));
      return tried_.front();
    }
    std::set<int64_t> counts;
    TryBestCaps(capper_, counts);
    // What stages that are nearly alike have in common.
    if (cost_.shape.loops == 1) TryBestCaps(ChunkCapper(MeanRank(), request_), counts);
    const int64_t pages = PageCount();
    const bool is_short = pages <= kShortPages;
    if (!is_short) most_passes_ = kMostPassesOfLong;
    if (is_short)
      for (int64_t count = 1; count <= pages; ++count) counts.insert(count);
    for (const int64_t count : counts) {
      if (count < 1 || count > pages) continue;
      TryEnds(capper_.EvenEnds(count));
      if (is_short) TryEnds(capper_.Ends(capper_.CapForCount(count, most)));
    }
    std::stable_sort(tried_.begin(), tried_.end(),
                     [&](const auto& a, const auto& b) { return Objective(a) < Objective(b); });
    ChunkSequence best = tried_.front();
    for (size_t i = 0; i < std::min(kRefined, tried_.size()); ++i) {
      ChunkSequence refined = Refine(tried_[i]);
      if (Objective(refined) < Objective(best)) best = std::move(refined);
    }
    return best;
  }

 private:
  // Caps that are best where the other ranks take as long as the slowest one, or the drain where
  // they take what they do.
  void TryBestCaps(const ChunkCapper& capper, std::set<int64_t>& counts) {
    double all_s = 0;
    double slowest_s = 0;
    for (const ChunkCost& rank : pipeline_.rank_costs()) {
      const double seconds = rank.Seconds(request_.begin, request_.end);
      all_s += seconds;
      slowest_s = std::max(slowest_s, seconds);
    }
    const double drain = request_.drain_share * (cost_.shape.ranks - 1);
    std::set<double> weights = {drain, drain / cost_.shape.loops};
    if (cost_.shape.loops == 1 && slowest_s > 0 && std::isfinite(all_s))
      weights.insert(request_.drain_share * (all_s / slowest_s - 1));
    const bool closely = cost_.shape.loops == 1 && IsShort(request_);
    for (const double weight : weights) {
      const double cap = capper.BestCap(weight, request_.max_seconds, closely ? kClose : kNear).cap;
      TryEnds(capper.Ends(cap));
      AddCountsAround(static_cast<int64_t>(tried_.back().ends.size()), counts);
    }
  }

  ChunkCost MeanRank() const {
    const std::vector<ChunkCost>& ranks = pipeline_.rank_costs();
    ChunkCost sum = ranks.front();
    for (size_t rank = 1; rank < ranks.size(); ++rank) sum = Sum(sum, ranks[rank]);
    return Scaled(sum, 1 / static_cast<double>(ranks.size()));
  }

  // The capper's cost. With a limit in seconds one that no rank exceeds.
  static ChunkCost SlowestRank(const Pipeline& pipeline, const ChunkRequest& request) {
    const std::vector<ChunkCost>& ranks = pipeline.rank_costs();
    if (std::isfinite(request.max_seconds)) {
      ChunkCost bound = ranks.front();
      for (const ChunkCost& rank : ranks) bound = Largest(bound, rank);
      return bound;
    }
    return *std::max_element(ranks.begin(), ranks.end(), [&](const auto& a, const auto& b) {
      return a.Seconds(request.begin, request.end) < b.Seconds(request.begin, request.end);
    });
  }

  int64_t PageCount() const {
    return (request_.end + request_.page_size - 1) / request_.page_size -
           request_.begin / request_.page_size;
  }

  void AddCountsAround(int64_t count, std::set<int64_t>& counts) const {
    const int64_t group = cost_.shape.ranks;
    const int64_t below = count / group * group;
    for (const int64_t other : {count, count - 1, count + 1, below - group, below, below + group,
                                below + 2 * group, below + 3 * group})
      counts.insert(other);
  }

  double Objective(const ChunkSequence& s) const {
    return (1 - request_.drain_share) * s.work_s + request_.drain_share * s.makespan_s;
  }

  void Measure(ChunkSequence& sequence) {
    passes_ += static_cast<int64_t>(sequence.ends.size()) * cost_.shape.stages();
    pipeline_.Measure(request_.begin, sequence);
  }

  void TryEnds(std::vector<int64_t> ends) {
    if (!IsWithinLimits(ends)) return;
    ChunkSequence sequence{.ends = std::move(ends)};
    Measure(sequence);
    if (tried_.empty() || IsShortEnough(sequence)) tried_.push_back(std::move(sequence));
  }

  bool IsShortEnough(const ChunkSequence& sequence) const {
    return sequence.longest_s <= request_.max_seconds * (1 + 1e-9);
  }

  bool IsWithinLimits(const std::vector<int64_t>& ends) const {
    const int64_t most = std::max(request_.max_tokens, request_.page_size);
    int64_t begin = request_.begin;
    for (const int64_t end : ends) {
      if (end <= begin || end - begin > most) return false;
      begin = end;
    }
    return begin == request_.end;
  }

  // Keeps a change that makes it better.
  bool Accept(std::vector<int64_t> ends, ChunkSequence& best) {
    if (passes_ >= most_passes_ || !IsWithinLimits(ends)) return false;
    ChunkSequence changed{.ends = std::move(ends)};
    Measure(changed);
    if (!IsShortEnough(changed)) return false;
    if (Objective(changed) >= Objective(best) * (1 - 1e-12)) return false;
    best = std::move(changed);
    return true;
  }

  // Moves cuts [first, last) by so many pages: chunk `first` gets them from chunk `last`.
  bool Shift(size_t first, size_t last, int64_t pages, ChunkSequence& best) {
    std::vector<int64_t> ends = best.ends;
    for (size_t cut = first; cut < last; ++cut) ends[cut] += pages * request_.page_size;
    return Accept(std::move(ends), best);
  }

  bool Drop(size_t cut, ChunkSequence& best) {
    std::vector<int64_t> ends = best.ends;
    ends.erase(ends.begin() + static_cast<int64_t>(cut));
    return Accept(std::move(ends), best);
  }

  bool CutInTwo(size_t chunk, ChunkSequence& best) {
    const int64_t begin = chunk == 0 ? request_.begin : best.ends[chunk - 1];
    const int64_t page = request_.page_size;
    bool better = false;
    for (int64_t at = (begin / page + 1) * page; at < best.ends[chunk] && !better; at += page) {
      std::vector<int64_t> ends = best.ends;
      ends.insert(ends.begin() + static_cast<int64_t>(chunk), at);
      better = Accept(std::move(ends), best);
    }
    return better;
  }

  ChunkSequence Refine(ChunkSequence best) {
    const bool is_short = PageCount() <= kShortPages;
    bool better = true;
    while (better && passes_ < most_passes_) {
      better = false;
      for (size_t first = 0; first + 1 < best.ends.size(); ++first) {
        const size_t most = is_short ? best.ends.size() : first + 2;
        for (size_t last = first + 1; last < std::min(most, best.ends.size()); ++last)
          for (const int64_t pages : {1, -1, 2, -2, 3, -3})
            better = Shift(first, last, pages, best) || better;
      }
      if (!is_short) continue;
      for (size_t cut = 0; cut + 1 < best.ends.size(); ++cut) better = Drop(cut, best) || better;
      for (size_t chunk = 0; chunk < best.ends.size(); ++chunk)
        better = CutInTwo(chunk, best) || better;
    }
    return best;
  }

  const PipelineCost& cost_;
  const ChunkRequest& request_;
  Pipeline& pipeline_;
  ChunkCapper capper_;
  std::vector<ChunkSequence> tried_;
  int64_t passes_ = 0;
  int64_t most_passes_ = kMostPasses;
};

}  // namespace

ChunkSequence PlanChunks(const PipelineCost& cost, const ChunkRequest& request) {
  LONGSPAN_CHECK(request.begin < request.end && request.page_size > 0, "a prompt without rows");
  const PipelineCost sane = SaneCost(cost);
  Pipeline pipeline(sane);
  if (!pipeline.identical() || sane.shape.is_ring()) return Search(sane, request, pipeline).Run();
  const ChunkCapper capper(pipeline.rank_costs().front(), request);
  const double cap = capper
                         .BestCap(request.drain_share * (sane.shape.ranks - 1), request.max_seconds,
                                  IsShort(request) ? kExact : kNear)
                         .cap;
  ChunkSequence sequence{.ends = capper.Ends(cap)};
  pipeline.Measure(request.begin, sequence);
  return sequence;
}

ChunkSequence Predict(const PipelineCost& cost, int64_t begin, std::vector<int64_t> ends) {
  const PipelineCost sane = SaneCost(cost);
  ChunkSequence sequence{.ends = std::move(ends)};
  Pipeline(sane).Measure(begin, sequence);
  return sequence;
}

}  // namespace longspan::plan
