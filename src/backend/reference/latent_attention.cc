// Latent attention: all heads over the one latent per token, dense or selected, and expanded.
#include <algorithm>

#include "backend/reference/attention.h"
#include "backend/reference/kernels.h"
#include "backend/reference/packed_matrix.h"
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
  if (args.selected.empty())
    return {nullptr, args.tables.positions.data<int32_t>()[row] + int64_t{1}};
  const auto* list = args.selected.row<int32_t>(row);
  return {list, std::find(list, list + args.selected.size(1), -1) - list};
}

// Where one sequence's latents and rope keys lie.
struct LatentRows {
  PagedHead latents;
  PagedHead ropes;

  template <typename Args>
  static LatentRows Of(const Args& args, int64_t row) {
    return {PagedHead::Of(args.latent_cache, args.tables, row, 0),
            PagedHead::Of(args.rope_cache, args.tables, row, 0)};
  }
};

// A query in the space of the latents, and its rope part.
struct WideQuery {
  double* latent;  // [rank]
  double* rope;
  double scale;
};

void Attend(const WideQuery& query, const LatentRows& rows, const Positions& positions,
            RunningSoftmax& sum) {
  const int64_t rank = rows.latents.dim;
  double scores[RunningSoftmax::kBlock];
  const float* block[RunningSoftmax::kBlock];
  for (int64_t begin = 0; begin < positions.count; begin += RunningSoftmax::kBlock) {
    const int64_t count = std::min(positions.count - begin, RunningSoftmax::kBlock);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = positions[begin + i];
      block[i] = rows.latents.at(position);
      scores[i] = query.scale * (Dot(query.latent, block[i], rank) +
                                 Dot(query.rope, rows.ropes.at(position), rows.ropes.dim));
    }
    sum.AddBlock(scores, block, count);
  }
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
    const LatentRows cached = LatentRows::Of(args, row);
    const int64_t rank = cached.latents.dim;
    double* doubles = scratch.of(thread);
    const WideQuery query = {doubles, doubles + rank, args.scale};
    std::copy_n(args.latent_queries.row<float>(row) + head * args.latent_queries.stride(1), rank,
                query.latent);
    std::copy_n(args.rope_queries.row<float>(row) + head * args.rope_queries.stride(1),
                cached.ropes.dim, query.rope);
    RunningSoftmax sum(query.rope + cached.ropes.dim, rank);
    Attend(query, cached, PositionsOf(args, row), sum);
    sum.Write(args.out.row<float>(row) + head * args.out.stride(1));
    if (!args.exp_sums.empty()) sum.WriteExpSum(args.exp_sums.row<float>(row) + 2 * head);
  });
}

// Expanded or absorbed is the same function: with sums this wide, the cheap order of them serves.
void ExpandedLatentAttention(tensor::ExecutionContext& context,
                             const ops::ExpandedLatentAttentionArgs& args) {
  const int64_t heads = args.out.size(1);
  const int64_t rank = args.latent_cache.size(3);
  const int64_t rope = args.rope_cache.size(3);
  const ThreadScratch scratch(context, LatentAttentionScratchDoubles(rank, rope));
  Threads(context).ParallelFor(args.tables.rows * heads, [&](int64_t task, int thread) {
    const int64_t row = args.tables.rows - 1 - task / heads;
    const int64_t head = task % heads;
    const PackedMatrix& key_weight = PackedMatrix::From(args.key_weights[head]);
    const PackedMatrix& value_weight = PackedMatrix::From(args.value_weights[head]);
    const float* from = args.queries.row<float>(row) + head * args.queries.stride(1);
    double* doubles = scratch.of(thread);
    const WideQuery query = {doubles, doubles + rank, args.scale};
    std::fill_n(query.latent, rank, 0.0);
    for (int64_t i = 0; i < key_weight.rows(); ++i) {
      const double weight = from[i];
      const float* key_row = key_weight.row(i);
      AddWeightedRows(&weight, &key_row, 1, query.latent, rank);
    }
    std::copy_n(from + key_weight.rows(), rope, query.rope);
    RunningSoftmax sum(query.rope + rope, rank);
    Attend(query, LatentRows::Of(args, row),
           {nullptr, args.tables.positions.data<int32_t>()[row] + int64_t{1}}, sum);
    const double* mean = sum.Mean();
    float* out = args.out.row<float>(row) + head * args.out.stride(1);
    for (int64_t i = 0; i < value_weight.rows(); ++i)
      out[i] = static_cast<float>(Dot(mean, value_weight.row(i), rank));
  });
}

}  // namespace longspan::backend::reference
