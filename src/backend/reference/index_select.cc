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

// The positions of the top_k best of [0, length), ascending. `best` has room for top_k of them: a
// heap whose front is the worst.
void SelectBest(const IndexQuery& query, const PagedHead& keys, int64_t length, int64_t top_k,
                Candidate* best, int32_t* selected) {
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
  std::transform(best, best + top_k, selected, [](const Candidate& c) { return c.position; });
  std::sort(selected, selected + top_k);
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
    double* queries = scratch.of(thread);
    for (int64_t head = 0; head < heads; ++head)
      std::copy_n(args.queries.row<float>(row) + head * args.queries.stride(1), dim,
                  queries + head * dim);
    SelectBest({queries, args.head_weights.row<float>(row), heads, args.scale},
               PagedHead::Of(args.index_cache, args.tables, row, 0), length, top_k,
               reinterpret_cast<Candidate*>(queries + heads * dim), selected);
  });
}

}  // namespace longspan::backend::reference
