#include "plan/chunk_planner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "plan/chunk_cap.h"
#include "plan/sequence_times.h"

namespace longspan::plan {
namespace {

constexpr int64_t kExactPages = 2048;
// Sums of the same times in another order differ by less.
constexpr double kExact = 1e-10;
constexpr double kClose = 1e-5;  // where costs are known less well than that
constexpr double kNear = 5e-4;
// Chunk passes through stages that a search looks at: some milliseconds. What else a chunk needs
// takes as long as some of them.
constexpr int64_t kMostPasses = 600'000;
constexpr int64_t kPassesOfChunk = 6;
constexpr int64_t kMostPassesOfCounts = 150'000;
constexpr int64_t kMostPassesOfLong = 60'000;
constexpr int64_t kMostPassesToEscape = 100'000;
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

double Objective(const ChunkSequence& s, const ChunkRequest& request) {
  return (1 - request.drain_share) * s.work_s + request.drain_share * s.makespan_s;
}

// For stages that are not alike or loop: tries plans with even times, then changes the best ones.
class Search {
 public:
  Search(const PipelineCost& cost, const ChunkRequest& request, SequenceTimes& times)
      : cost_(cost),
        request_(request),
        times_(times),
        capper_(SlowestRank(times, request), request) {}

  ChunkSequence Run() {
    const double most = request_.max_seconds;
    if (most < capper_.least_cap()) {
      // Nothing to choose: pages where they are above it, else as long as can be.
      TryEnds(capper_.Ends(most));
      return tried_.front();
    }
    TryBestCaps(capper_);
    // What stages that are nearly alike have in common.
    if (cost_.shape.loops == 1) TryBestCaps(ChunkCapper(MeanRank(), request_));
    const bool is_short = PageCount() <= kShortPages;
    TryCounts(is_short);
    most_passes_ = is_short ? kMostPasses : passes_ + kMostPassesOfLong;
    SortTried();
    tried_.resize(std::min(kRefined, tried_.size()));
    for (ChunkSequence& sequence : tried_) sequence = Refine(std::move(sequence));
    SortTried();
    if (is_short) EscapeAll();
    return tried_.front();
  }

 private:
  // Caps that are best where the other ranks take as long as the slowest one, or the drain where
  // they take what they do.
  void TryBestCaps(const ChunkCapper& capper) {
    double all_s = 0;
    double slowest_s = 0;
    for (const ChunkCost& rank : times_.rank_costs()) {
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
      AddCountsAround(static_cast<int64_t>(tried_.back().ends.size()));
    }
  }

  void TryCounts(bool is_short) {
    const int64_t pages = PageCount();
    if (is_short)
      for (int64_t count = 1; count <= pages; ++count) counts_.push_back(count);
    std::set<int64_t> seen;
    for (const int64_t count : counts_) {
      // Of thousands of chunks one more or less makes no difference.
      if (!is_short && passes_ >= kMostPassesOfCounts) return;
      if (count < 1 || count > pages || !seen.insert(count).second) continue;
      TryEnds(capper_.EvenEnds(count));
      if (is_short) TryEnds(capper_.Ends(capper_.CapForCount(count, request_.max_seconds)));
    }
  }

  void EscapeAll() {
    most_passes_ = passes_ + kMostPassesToEscape;
    std::set<std::vector<int64_t>> seen;
    for (ChunkSequence& sequence : tried_)
      while (seen.insert(sequence.ends).second && Escape(sequence))
        sequence = Refine(std::move(sequence));
    SortTried();
  }

  ChunkCost MeanRank() const {
    const std::vector<ChunkCost>& ranks = times_.rank_costs();
    ChunkCost sum = ranks.front();
    for (size_t rank = 1; rank < ranks.size(); ++rank) sum = Sum(sum, ranks[rank]);
    return Scaled(sum, 1 / static_cast<double>(ranks.size()));
  }

  // The capper's cost. With a limit in seconds one that no rank exceeds.
  static ChunkCost SlowestRank(const SequenceTimes& times, const ChunkRequest& request) {
    const std::vector<ChunkCost>& ranks = times.rank_costs();
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

  // The most promising first.
  void AddCountsAround(int64_t count) {
    const int64_t group = cost_.shape.ranks;
    const int64_t below = count / group * group;
    for (const int64_t other : {below, below + group, count, count - 1, count + 1, below - group,
                                below + 2 * group, below + 3 * group})
      counts_.push_back(other);
  }

  double Objective(const ChunkSequence& sequence) const {
    return plan::Objective(sequence, request_);
  }

  void Measure(ChunkSequence& sequence) {
    passes_ += static_cast<int64_t>(sequence.ends.size()) * (cost_.shape.stages() + kPassesOfChunk);
    times_.Measure(request_.begin, request_.longest_before_s, sequence);
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
    if (passes_ >= most_passes_) return false;
    passes_ += static_cast<int64_t>(best.ends.size());  // of a copy, where the limits refuse it
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

  void SortTried() {
    std::stable_sort(tried_.begin(), tried_.end(),
                     [&](const auto& a, const auto& b) { return Objective(a) < Objective(b); });
  }

  // How many pages each chunk has, a part of one counted as one.
  std::vector<int64_t> Pages(const ChunkSequence& sequence) const {
    std::vector<int64_t> pages;
    int64_t first = request_.begin / request_.page_size;
    for (const int64_t end : sequence.ends) {
      const int64_t last = (end + request_.page_size - 1) / request_.page_size;
      pages.push_back(last - first);
      first = last;
    }
    return pages;
  }

  bool AcceptPages(const std::vector<int64_t>& pages, ChunkSequence& best) {
    std::vector<int64_t> ends;
    int64_t last = request_.begin / request_.page_size;
    for (const int64_t count : pages) ends.push_back((last += count) * request_.page_size);
    ends.back() = request_.end;
    return Accept(std::move(ends), best);
  }

  // A change after which smaller ones may help again: a chunk goes to another place, or two pages
  // go from chunks to others at once.
  bool Escape(ChunkSequence& best) {
    const std::vector<int64_t> pages = Pages(best);
    for (size_t from = 0; from < pages.size(); ++from) {
      for (size_t to = 0; to < pages.size(); ++to) {
        if (passes_ >= most_passes_) return false;
        std::vector<int64_t> moved = pages;
        moved.erase(moved.begin() + static_cast<int64_t>(from));
        moved.insert(moved.begin() + static_cast<int64_t>(to), pages[from]);
        if (moved != pages && AcceptPages(moved, best)) return true;
      }
    }
    return MoveTwoPages(pages, best);
  }

  bool MoveTwoPages(const std::vector<int64_t>& pages, ChunkSequence& best) {
    const size_t chunks = pages.size();
    for (size_t a = 0; a < chunks; ++a) {
      for (size_t b = a; b < chunks; ++b) {
        std::vector<int64_t> given = pages;
        if (--given[a] < 1 || --given[b] < 1) continue;
        if (GiveTwoPages(given, best)) return true;
        if (passes_ >= most_passes_) return false;
      }
    }
    return false;
  }

  // To any two chunks, of which both may be the same one.
  bool GiveTwoPages(const std::vector<int64_t>& pages, ChunkSequence& best) {
    for (size_t a = 0; a < pages.size(); ++a) {
      for (size_t b = a; b < pages.size(); ++b) {
        std::vector<int64_t> taken = pages;
        ++taken[a];
        ++taken[b];
        if (AcceptPages(taken, best)) return true;
      }
    }
    return false;
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
  SequenceTimes& times_;
  ChunkCapper capper_;
  std::vector<ChunkSequence> tried_;
  std::vector<int64_t> counts_;  // of chunks, to be tried
  int64_t passes_ = 0;
  int64_t most_passes_ = kMostPasses;
};

ChunkSequence Plan(const PipelineCost& sane, const ChunkRequest& request) {
  SequenceTimes times(sane);
  if (!times.identical() || sane.shape.is_ring()) return Search(sane, request, times).Run();
  const ChunkCapper capper(times.rank_costs().front(), request);
  const double cap = capper
                         .BestCap(request.drain_share * (sane.shape.ranks - 1), request.max_seconds,
                                  IsShort(request) ? kExact : kNear)
                         .cap;
  ChunkSequence sequence{.ends = capper.Ends(cap)};
  times.Measure(request.begin, request.longest_before_s, sequence);
  return sequence;
}

}  // namespace

ChunkSequence PlanChunks(const PipelineCost& cost, const ChunkRequest& request) {
  LONGSPAN_CHECK(request.begin < request.end && request.page_size > 0, "a prompt without rows");
  const PipelineCost sane = SaneCost(cost);
  ChunkRequest alone = request;
  alone.longest_before_s = 0;
  ChunkSequence sequence = Plan(sane, alone);
  if (request.longest_before_s == 0) return sequence;
  SequenceTimes(sane).Measure(request.begin, request.longest_before_s, sequence);
  if (sequence.longest_s >= request.longest_before_s) return sequence;
  ChunkRequest behind = request;
  behind.max_seconds = std::min(request.max_seconds, request.longest_before_s);
  ChunkSequence longer = Plan(sane, behind);
  return Objective(longer, request) <= Objective(sequence, request) ? longer : sequence;
}

ChunkSequence Predict(const PipelineCost& cost, int64_t begin, std::vector<int64_t> ends) {
  const PipelineCost sane = SaneCost(cost);
  ChunkSequence sequence{.ends = std::move(ends)};
  SequenceTimes(sane).Measure(begin, 0, sequence);
  return sequence;
}

}  // namespace longspan::plan
