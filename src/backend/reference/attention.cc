// The cache of keys and values: writing and attending.
#include "backend/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/kernels.h"
#include "backend/reference/thread_scratch.h"
#include "backend/reference/wide_sums.h"

namespace longspan::backend::reference {
namespace {

// Positions whose scores are known before any value is added up. Blocks begin at multiples of it,
// whatever the page size.
constexpr int64_t kBlock = 64;

// Where the heads of one sequence lie in a cache.
struct PagedHead {
  const float* cache;    // [pages, kv_heads, page_size, head_dim], from this head's first token
  int64_t page_stride;   // elements
  const int32_t* pages;  // of the sequence
  int64_t page_size;
  int64_t head_dim;

  const float* at(int64_t position) const {
    return cache + pages[position / page_size] * page_stride + position % page_size * head_dim;
  }
};

// A softmax-weighted sum that grows block by block: weights are relative to the largest score so
// far, and what was added before is scaled down when a larger one comes (Milakov and Gimelshein
// 2018).
struct RunningSoftmax {
  double largest = -std::numeric_limits<double>::infinity();
  double weights = 0;
  double* values;  // [head_dim]
};

// `scores` of positions [begin, end), at most a block.
void AddBlock(const double* scores, const PagedHead& values, int64_t begin, int64_t end,
              RunningSoftmax& sum) {
  const int64_t count = end - begin;
  const double largest = std::max(sum.largest, *std::max_element(scores, scores + count));
  // Of the first block it is exp(-infinity) = 0, on sums of 0.
  const double shrink = std::exp(sum.largest - largest);
  sum.weights *= shrink;
  for (int64_t d = 0; d < values.head_dim; ++d) sum.values[d] *= shrink;
  sum.largest = largest;
  double weights[kBlock];
  const float* rows[kBlock];
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = std::exp(scores[i] - largest);
    rows[i] = values.at(begin + i);
    sum.weights += weights[i];
  }
  AddWeightedRows(weights, rows, count, sum.values, values.head_dim);
}

struct PagedKv {
  PagedHead keys;
  PagedHead values;
};

// Positions [0, length) for one query head. `scratch` is of AttentionScratchDoubles.
void Attend(const float* query, const PagedKv& kv, int64_t length, double scale, double* scratch,
            float* out) {
  const int64_t head_dim = kv.keys.head_dim;
  double* wide_query = scratch;
  std::copy_n(query, head_dim, wide_query);
  RunningSoftmax sum = {.values = scratch + head_dim};
  std::fill_n(sum.values, head_dim, 0.0);
  double scores[kBlock];
  for (int64_t begin = 0; begin < length; begin += kBlock) {
    const int64_t end = std::min(length, begin + kBlock);
    for (int64_t position = begin; position < end; ++position)
      scores[position - begin] = scale * Dot(wide_query, kv.keys.at(position), head_dim);
    AddBlock(scores, kv.values, begin, end, sum);
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] = static_cast<float>(sum.values[d] / sum.weights);
}

int64_t SliceOfRow(const ops::StepTables& tables, int64_t row) {
  const auto* begin = tables.slice_row_begin.data<int32_t>();
  return std::upper_bound(begin, begin + tables.slices + 1, row) - begin - 1;
}

}  // namespace

int64_t AttentionScratchDoubles(int64_t head_dim) { return 2 * head_dim; }

void CacheWrite(tensor::ExecutionContext& context, const ops::CacheWriteArgs& args) {
  const auto* slots = args.slots.data<int64_t>();
  const int64_t page_size = args.cache.size(2);
  Threads(context).ParallelFor(args.x.size(0), [&](int64_t row, int) {
    const int64_t page = slots[row] / page_size;
    const int64_t offset = slots[row] % page_size;
    for (int64_t head = 0; head < args.x.size(1); ++head)
      std::copy_n(args.x.row<float>(row) + head * args.x.stride(1), args.x.size(2),
                  args.cache.row<float>(page) + head * args.cache.stride(1) +
                      offset * args.cache.stride(2));
  });
}

void Attention(tensor::ExecutionContext& context, const ops::AttentionArgs& args) {
  const int64_t heads = args.queries.size(1);
  const int64_t queries_per_key = heads / args.key_cache.size(1);
  const auto* positions = args.tables.positions.data<int32_t>();
  const ThreadScratch scratch(context, AttentionScratchDoubles(args.queries.size(2)));
  Threads(context).ParallelFor(args.tables.rows * heads, [&](int64_t task, int thread) {
    // Long rows first: the loop ends with small tasks, on all threads at about the same time.
    const int64_t row = args.tables.rows - 1 - task / heads;
    const int64_t head = task % heads;
    const auto paged = [&](const tensor::ConstView& cache) {
      return PagedHead{cache.data<float>() + head / queries_per_key * cache.stride(1),
                       cache.stride(0),
                       args.tables.page_table.row<int32_t>(SliceOfRow(args.tables, row)),
                       cache.size(2), cache.size(3)};
    };
    Attend(args.queries.row<float>(row) + head * args.queries.stride(1),
           {paged(args.key_cache), paged(args.value_cache)}, positions[row] + int64_t{1},
           args.scale, scratch.of(thread), args.out.row<float>(row) + head * args.out.stride(1));
  });
}

}  // namespace longspan::backend::reference
