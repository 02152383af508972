// The best positions for sparse attention, over keys that stream by.
#include "backend/reference/index_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/reference/kernels.h"
#include "backend/reference/paged_cache.h"
#include "backend/reference/thread_scratch.h"
#include "backend/reference/wide_sums.h"

namespace longspan::backend::reference {
namespace {

struct Candidate {
  float score;
  int32_t position;
};
static_assert(sizeof(Candidate) == sizeof(double), "scratch is counted in doubles");

bool Before(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.position < b.position;
}

// One row's queries and their weights, in double.
struct IndexQuery {
  const double* queries;  // [heads, dim]
  const float* weights;   // [heads]
  int64_t heads;
  double scale;

  float Score(const float* key, int64_t dim) const {
    double sum = 0;
    for (int64_t head = 0; head < heads; ++head)
      sum += weights[head] * std::max(0.0, scale * Dot(queries + head * dim, key, dim));
    return std::isnan(sum) ? -std::numeric_limits<float>::infinity() : static_cast<float>(sum);
  }
};

// The best of [0, length), up to top_k of them: how many. `best`, which has room for top_k, becomes
// a heap whose front is the worst.
int64_t FindBest(const IndexQuery& query, const PagedHead& keys, int64_t length, int64_t top_k,
                 Candidate* best) {
  for (int64_t position = 0; position < length; ++position) {
    const Candidate candidate = {query.Score(keys.at(position), keys.dim),
                                 static_cast<int32_t>(position)};
    if (position < top_k) {
      best[position] = candidate;
      std::push_heap(best, best + position + 1, Before);
    } else if (Before(candidate, best[0])) {
      std::pop_heap(best, best + top_k, Before);
      best[top_k - 1] = candidate;
      std::push_heap(best, best + top_k, Before);
    }
  }
  return std::min(length, top_k);
}

// What a thread has for one row: its queries in double, and after them its candidates.
template <typename Args>
IndexQuery QueryOf(const Args& args, int64_t row, double* doubles) {
  const int64_t heads = args.queries.size(1);
  const int64_t dim = args.queries.size(2);
  for (int64_t head = 0; head < heads; ++head)
    std::copy_n(args.queries.template row<float>(row) + head * args.queries.stride(1), dim,
                doubles + head * dim);
  return {doubles, args.head_weights.template row<float>(row), heads, args.scale};
}
Candidate* CandidatesAfter(const IndexQuery& query, double* doubles, int64_t dim) {
  return reinterpret_cast<Candidate*>(doubles + query.heads * dim);
}

}  // namespace

int64_t IndexSelectScratchDoubles(int64_t heads, int64_t dim, int64_t top_k) {
  return heads * dim + top_k;
}

void IndexSelect(tensor::ExecutionContext& context, const ops::IndexSelectArgs& args) {
  const int64_t heads = args.queries.size(1);
  const int64_t dim = args.queries.size(2);
  const int64_t top_k = args.selected.size(1);
  const auto* positions = args.tables.positions.data<int32_t>();
  const ThreadScratch scratch(context, IndexSelectScratchDoubles(heads, dim, top_k));
  Threads(context).ParallelFor(args.tables.rows, [&](int64_t task, int thread) {
    const int64_t row = args.tables.rows - 1 - task;
    const int64_t length = positions[row] + int64_t{1};
    auto* selected = args.selected.row<int32_t>(row);
    if (length <= top_k) {
      std::iota(selected, selected + length, 0);
      std::fill(selected + length, selected + top_k, -1);
      return;
    }
    const IndexQuery query = QueryOf(args, row, scratch.of(thread));
    Candidate* best = CandidatesAfter(query, scratch.of(thread), dim);
    FindBest(query, PagedHead::Of(args.index_cache, args.tables, row, 0), length, top_k, best);
    std::transform(best, best + top_k, selected, [](const Candidate& c) { return c.position; });
    std::sort(selected, selected + top_k);
  });
}

void IndexCandidates(tensor::ExecutionContext& context, const ops::IndexCandidatesArgs& args) {
  const int64_t heads = args.queries.size(1);
  const int64_t dim = args.queries.size(2);
  const int64_t top_k = args.positions.size(1);
  const int64_t page_size = args.index_cache.size(2);
  const ThreadScratch scratch(context, IndexSelectScratchDoubles(heads, dim, top_k));
  Threads(context).ParallelFor(args.tables.rows, [&](int64_t task, int thread) {
    const int64_t row = args.tables.rows - 1 - task;
    const IndexQuery query = QueryOf(args, row, scratch.of(thread));
    Candidate* best = CandidatesAfter(query, scratch.of(thread), dim);
    const int64_t length = args.tables.positions.data<int32_t>()[row] + int64_t{1};
    const int64_t count =
        FindBest(query, PagedHead::Of(args.index_cache, args.tables, row, 0), length, top_k, best);
    std::sort(best, best + count, Before);
    auto* scores = args.scores.row<float>(row);
    auto* positions = args.positions.row<int32_t>(row);
    const auto* pages = args.page_indices.row<int32_t>(SliceOfRow(args.tables, row));
    for (int64_t i = 0; i < count; ++i) {
      scores[i] = best[i].score;
      positions[i] = static_cast<int32_t>(pages[best[i].position / page_size] * page_size +
                                          best[i].position % page_size);
    }
    std::fill(scores + count, scores + top_k, -std::numeric_limits<float>::infinity());
    std::fill(positions + count, positions + top_k, -1);
  });
}

void IndexMerge(tensor::ExecutionContext& context, const ops::IndexMergeArgs& args) {
  const int64_t parts = args.scores.size(0);
  const int64_t rows = args.scores.size(1);
  const int64_t top_k = args.scores.size(2);
  Threads(context).ParallelFor(rows, [&](int64_t row, int) {
    auto* counts = args.counts.data<int32_t>() + row;
    for (int64_t part = 0; part < parts; ++part) counts[part * rows] = 0;
    for (int64_t taken = 0; taken < top_k; ++taken) {
      int64_t best_part = -1;
      Candidate best = {};
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t next = counts[part * rows];
        if (next == top_k) continue;
        const int64_t place = (part * rows + row) * top_k + next;
        const Candidate candidate = {args.scores.data<float>()[place],
                                     args.positions.data<int32_t>()[place]};
        if (candidate.position < 0 || (best_part >= 0 && !Before(candidate, best))) continue;
        best = candidate;
        best_part = part;
      }
      if (best_part < 0) return;
      ++counts[best_part * rows];
    }
  });
}

void IndexTake(tensor::ExecutionContext& context, const ops::IndexTakeArgs& args) {
  Threads(context).ParallelFor(args.tables.rows, [&](int64_t row, int) {
    auto* positions = args.positions.row<int32_t>(row);
    const int64_t count = args.counts.data<int32_t>()[row];
    std::sort(positions, positions + count);
    const auto* page = args.page_indices.row<int32_t>(SliceOfRow(args.tables, row));
    int64_t begin = 0;  // of the page, as `tables` count
    for (int64_t i = 0; i < count; ++i) {
      for (; *page < positions[i] / args.page_size; ++page) begin += args.page_size;
      positions[i] = static_cast<int32_t>(begin + positions[i] % args.page_size);
    }
    std::fill(positions + count, positions + args.positions.size(1), -1);
  });
}

}  // namespace longspan::backend::reference
