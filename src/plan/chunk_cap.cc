#include "plan/chunk_cap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

namespace longspan::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Caps that differ by less are the same sum in another order.
constexpr double kRounding = 1e-12;
// Bounds the search where the objective is nearly flat over many caps: some milliseconds.
constexpr int64_t kMostChunks = 150'000;

// The least s in [0, end] with constant + tokens (end - s) + prefix s + pairs (end^2 - s^2) <= cap.
double LeastRoot(double end, double constant, double tokens, double prefix, double pairs) {
  // pairs s^2 + (tokens - prefix) s >= excess
  const double excess = constant + tokens * end + pairs * end * end;
  if (!(excess > 0)) return 0;
  const double slope = tokens - prefix;
  const double root = slope + std::sqrt(slope * slope + 4 * pairs * excess);
  return root > 0 ? 2 * excess / root : end;
}

struct Interval {
  double bound = 0;  // no cap in it gives less
  CappedChunks low, high;
  bool operator<(const Interval& other) const { return bound > other.bound; }
};

}  // namespace

ChunkCapper::ChunkCapper(const ChunkCost& cost, const ChunkRequest& request)
    : cost_(cost), request_(request) {
  request_.max_tokens = std::max(request.max_tokens, request.page_size);
  for (int64_t end = request_.end; end > request_.begin;) {
    const int64_t begin = PageBefore(end);
    least_cap_ = std::max(least_cap_, cost_.Seconds(begin, end));
    end = begin;
  }
  most_cap_ = std::max(least_cap_, Cut(kInfinity).longest);
}

int64_t ChunkCapper::PageBefore(int64_t position) const {
  return std::max(request_.begin, (position - 1) / request_.page_size * request_.page_size);
}

double ChunkCapper::LeastBegin(int64_t end, double cap) const {
  const auto last = static_cast<double>(end);
  if (cost_.top_k == 0 || end <= cost_.top_k)
    return LeastRoot(last, cost_.per_step - cap, cost_.per_token, cost_.per_prefix_token,
                     cost_.per_pair + (cost_.top_k == 0 ? 0 : cost_.per_index_pair));
  const auto top_k = static_cast<double>(cost_.top_k);
  const double sparse_token = cost_.per_token + cost_.per_selected_pair * 2 * top_k;
  const double begin = LeastRoot(last, cost_.per_step - cap, sparse_token, cost_.per_prefix_token,
                                 cost_.per_index_pair);
  if (begin >= top_k) return begin;
  const double behind =
      sparse_token * (last - top_k) + cost_.per_index_pair * (last - top_k) * (last + top_k);
  return LeastRoot(top_k, cost_.per_step + behind - cap, cost_.per_token, cost_.per_prefix_token,
                   cost_.per_pair + cost_.per_index_pair);
}

int64_t ChunkCapper::EarliestBegin(int64_t end, double cap) const {
  const int64_t page = request_.page_size;
  int64_t least = request_.begin;
  if (end - least > request_.max_tokens)
    least = (end - request_.max_tokens + page - 1) / page * page;
  const double root = LeastBegin(end, cap * (1 + kRounding));
  int64_t begin = least;
  if (root > static_cast<double>(least))
    begin = std::max(
        least, static_cast<int64_t>(std::ceil(root / static_cast<double>(page) - 1e-9)) * page);
  return std::min(begin, PageBefore(end));
}

CappedChunks ChunkCapper::Cut(double cap, std::vector<int64_t>* begins) const {
  CappedChunks chunks{.possible = cap >= least_cap_, .next_cap = kInfinity};
  for (int64_t end = request_.end; end > request_.begin;) {
    const int64_t begin = EarliestBegin(end, cap);
    const double seconds = cost_.Seconds(begin, end);
    chunks.sum += seconds;
    chunks.longest = std::max(chunks.longest, seconds);
    ++chunks.count;
    if (begin > request_.begin && end - PageBefore(begin) <= request_.max_tokens)
      chunks.next_cap = std::min(chunks.next_cap, cost_.Seconds(PageBefore(begin), end));
    if (begins != nullptr) begins->push_back(begin);
    end = begin;
  }
  return chunks;
}

std::vector<int64_t> ChunkCapper::Ends(double cap) const {
  std::vector<int64_t> begins;
  Cut(cap, &begins);
  // A chunk's begin is the end of the one before it.
  std::vector<int64_t> ends(begins.rbegin() + 1, begins.rend());
  ends.push_back(request_.end);
  return ends;
}

ChunkCapper::Choice ChunkCapper::BestCap(double drain_weight, double most, double tolerance) const {
  const auto drain = [&](double longest) {
    return drain_weight * std::max(longest, request_.longest_before_s);
  };
  const auto objective = [&](const CappedChunks& chunks) {
    return chunks.sum + drain(chunks.longest);
  };
  if (most < least_cap_) return {.cap = most};
  const CappedChunks high = Cut(std::min(most, most_cap_));
  const CappedChunks low = Cut(least_cap_);
  Choice choice = {.cap = high.longest, .chunks = low.count + high.count};
  double best = objective(high);
  const auto consider = [&](const CappedChunks& chunks) {
    if (objective(chunks) >= best) return;
    best = objective(chunks);
    choice.cap = chunks.longest;
  };
  consider(low);
  std::priority_queue<Interval> intervals;
  const auto push = [&](const CappedChunks& a, const CappedChunks& b) {
    // Whatever is neither a nor b has a longest chunk between these two.
    if (a.next_cap >= b.longest * (1 - kRounding)) return;
    intervals.push({b.sum + drain(a.next_cap), a, b});
  };
  push(low, high);
  while (!intervals.empty() && choice.chunks < kMostChunks) {
    const Interval interval = intervals.top();
    intervals.pop();
    if (interval.bound >= best * (1 - tolerance)) break;
    const double from = interval.low.next_cap;
    const double to = interval.high.longest * (1 - kRounding);
    const CappedChunks middle = Cut(to > 2 * from ? std::sqrt(from * to) : (from + to) / 2);
    choice.chunks += middle.count;
    consider(middle);
    push(interval.low, middle);
    push(middle, interval.high);
  }
  return choice;
}

std::vector<int64_t> ChunkCapper::EvenEnds(int64_t count) const {
  const int64_t page = request_.page_size;
  const int64_t first_page = request_.begin / page;  // borders are multiples above it
  std::vector<int64_t> ends(static_cast<size_t>(count));
  int64_t end = request_.end;
  for (int64_t left = count; left > 0; --left) {
    ends[static_cast<size_t>(left) - 1] = end;
    int64_t begin = request_.begin;
    if (left > 1) {
      // An equal part of what is left, each with its own constant time and its own prefix.
      const double middle = static_cast<double>(request_.begin + end) / 2;
      const double work = cost_.Seconds(request_.begin, end) - cost_.per_step -
                          cost_.per_prefix_token * static_cast<double>(request_.begin);
      const double share =
          work / static_cast<double>(left) + cost_.per_step + cost_.per_prefix_token * middle;
      begin =
          static_cast<int64_t>(std::lround(LeastBegin(end, share) / static_cast<double>(page))) *
          page;
      // A page at least for this one and for each of those before it.
      begin = std::clamp(begin, (first_page + left - 1) * page,
                         std::max((first_page + left - 1) * page, PageBefore(end)));
    }
    if (begin >= end || end - begin > request_.max_tokens) return {};
    end = begin;
  }
  return ends;
}

double ChunkCapper::CapForCount(int64_t count, double most) const {
  if (most < least_cap_) return most;
  double high = std::min(most, most_cap_);
  double low = least_cap_;
  if (Cut(low).count <= count) return low;
  while (high > low * 1.001) {
    const double middle = (low + high) / 2;
    const CappedChunks chunks = Cut(middle);
    if (chunks.count > count) {
      low = std::max(middle, std::min(chunks.next_cap, high));
    } else {
      high = chunks.longest;
    }
  }
  return high;
}

}  // namespace longspan::plan
