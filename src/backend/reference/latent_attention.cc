// Latent attention: all heads over the one latent per token, dense or selected.
#include <algorithm>

#include "backend/reference/attention.h"
#include "backend/reference/kernels.h"
#include "backend/reference/paged_cache.h"
#include "backend/reference/running_softmax.h"
#include "backend/reference/thread_scratch.h"
#include "backend/reference/wide_sums.h"

namespace longspan::backend::reference {
namespace {

// The positions that one row attends to, in order.
struct Positions {
  const int32_t* list;  // null: 0 .. count - 1
  int64_t count;

  int64_t operator[](int64_t i) const { return list == nullptr ? i : list[i]; }
};

Positions PositionsOf(const ops::LatentAttentionArgs& args, int64_t row) {
  if (args.selected.empty()) return {nullptr, args.tables.positions.data<int32_t>()[row] + 1};
  const auto* list = args.selected.row<int32_t>(row);
  return {list, std::find(list, list + args.selected.size(1), -1) - list};
}

struct Query {
  const float* latent;
  const float* rope;
  double scale;
};

// `scratch` is of LatentAttentionScratchDoubles.
void Attend(const Query& query, const PagedHead& latents, const PagedHead& ropes,
            const Positions& positions, double* scratch, float* out) {
  const int64_t rank = latents.dim;
  double* wide_latent = scratch;
  double* wide_rope = scratch + rank;
  std::copy_n(query.latent, rank, wide_latent);
  std::copy_n(query.rope, ropes.dim, wide_rope);
  RunningSoftmax sum(scratch + rank + ropes.dim, rank);
  double scores[RunningSoftmax::kBlock];
  const float* rows[RunningSoftmax::kBlock];
  for (int64_t begin = 0; begin < positions.count; begin += RunningSoftmax::kBlock) {
    const int64_t count = std::min(positions.count - begin, RunningSoftmax::kBlock);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = positions[begin + i];
      rows[i] = latents.at(position);
      scores[i] = query.scale *
                  (Dot(wide_latent, rows[i], rank) + Dot(wide_rope, ropes.at(position), ropes.dim));
    }
    sum.AddBlock(scores, rows, count);
  }
  sum.Write(out);
}

}  // namespace

int64_t LatentAttentionScratchDoubles(int64_t rank, int64_t rope_dim) {
  return 2 * rank + rope_dim;
}

void LatentAttention(tensor::ExecutionContext& context, const ops::LatentAttentionArgs& args) {
  const int64_t heads = args.out.size(1);
  const ThreadScratch scratch(
      context, LatentAttentionScratchDoubles(args.out.size(2), args.rope_queries.size(2)));
  Threads(context).ParallelFor(args.tables.rows * heads, [&](int64_t task, int thread) {
    // Long rows first: the loop ends with small tasks, on all threads at about the same time.
    const int64_t row = args.tables.rows - 1 - task / heads;
    const int64_t head = task % heads;
    const Query query = {args.latent_queries.row<float>(row) + head * args.latent_queries.stride(1),
                         args.rope_queries.row<float>(row) + head * args.rope_queries.stride(1),
                         args.scale};
    Attend(query, PagedHead::Of(args.latent_cache, args.tables, row, 0),
           PagedHead::Of(args.rope_cache, args.tables, row, 0), PositionsOf(args, row),
           scratch.of(thread), args.out.row<float>(row) + head * args.out.stride(1));
  });
}

}  // namespace longspan::backend::reference
