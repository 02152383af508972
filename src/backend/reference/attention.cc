// The cache of keys and values: writing and attending.
#include "backend/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/kernels.h"
#include "backend/reference/paged_cache.h"
#include "backend/reference/running_softmax.h"
#include "backend/reference/thread_scratch.h"
#include "backend/reference/wide_sums.h"

namespace longspan::backend::reference {
namespace {

struct PagedKv {
  PagedHead keys;
  PagedHead values;
};

// Positions [0, length) for one query head. `scratch` is of AttentionScratchDoubles. Blocks begin
// at multiples of kBlock, whatever the page size.
RunningSoftmax Attend(const float* query, const PagedKv& kv, int64_t length, double scale,
                      double* scratch, float* out) {
  const int64_t head_dim = kv.keys.dim;
  double* wide_query = scratch;
  std::copy_n(query, head_dim, wide_query);
  RunningSoftmax sum(scratch + head_dim, head_dim);
  double scores[RunningSoftmax::kBlock];
  const float* rows[RunningSoftmax::kBlock];
  for (int64_t begin = 0; begin < length; begin += RunningSoftmax::kBlock) {
    const int64_t count = std::min(length - begin, RunningSoftmax::kBlock);
    for (int64_t i = 0; i < count; ++i) {
      scores[i] = scale * Dot(wide_query, kv.keys.at(begin + i), head_dim);
      rows[i] = kv.values.at(begin + i);
    }
    sum.AddBlock(scores, rows, count);
  }
  sum.Write(out);
  return sum;
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
    const int64_t kv_head = head / queries_per_key;
    const RunningSoftmax sum = Attend(args.queries.row<float>(row) + head * args.queries.stride(1),
                                      {PagedHead::Of(args.key_cache, args.tables, row, kv_head),
                                       PagedHead::Of(args.value_cache, args.tables, row, kv_head)},
                                      positions[row] + int64_t{1}, args.scale, scratch.of(thread),
                                      args.out.row<float>(row) + head * args.out.stride(1));
    if (!args.exp_sums.empty()) sum.WriteExpSum(args.exp_sums.row<float>(row) + 2 * head);
  });
}

void MergeAttention(tensor::ExecutionContext& context, const ops::MergeAttentionArgs& args) {
  const int64_t parts = args.parts.size(0);
  const int64_t heads = args.out.size(1);
  const int64_t dim = args.out.size(2);
  const int64_t row_heads = args.out.size(0) * heads;
  const auto* sums = args.exp_sums.data<float>();
  Threads(context).ParallelFor(row_heads, [&](int64_t task, int) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t part = 0; part < parts; ++part)
      largest = std::max<double>(largest, sums[2 * (part * row_heads + task)]);
    float* out = args.out.row<float>(task / heads) + task % heads * args.out.stride(1);
    for (int64_t d = 0; d < dim; ++d) {
      double sum = 0;
      double weights = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t place = part * row_heads + task;
        const double weight = sums[2 * place + 1] * std::exp2(sums[2 * place] - largest);
        weights += weight;
        sum += weight * args.parts.data<float>()[place * dim + d];
      }
      out[d] = static_cast<float>(sum / weights);
    }
  });
}

}  // namespace longspan::backend::reference
