#include "model/select_across_ranks.h"

#include "model/row_exchange.h"

namespace longspan::model {

using tensor::DType;
using tensor::View;

bool SelectAcrossRanks(const Step& step, const IndexQueries& own, const tensor::ConstView& cache,
                       const tensor::View& selected) {
  const GatheredRows& gathered = step.gathered;
  tensor::Workspace::Scope scratch(step.context.workspace);
  RowExchange exchange(step, scratch);
  const int64_t heads = own.head_weights.size(1);
  const View queries = exchange.StartGather(own.queries);
  const View head_weights = exchange.StartGather(own.head_weights.SplitColumns(1, heads));
  exchange.Finish();

  const View scores = scratch.Take(DType::kF32, {exchange.all_rows(), selected.size(1)});
  ops::Dispatch(
      step.context, step.ops.index_candidates,
      {.queries = queries,
       .head_weights = View(head_weights.raw(), DType::kF32, {exchange.all_rows(), heads}),
       .index_cache = cache,
       .tables = gathered.tables,
       .page_indices = gathered.page_indices,
       .scale = own.scale,
       .scores = scores,
       .positions = selected});
  const View scores_of_ranks = exchange.StartToOwners(scores);
  const View positions_of_ranks = exchange.StartToOwners(selected);
  exchange.Finish();

  // Of its sorted candidates a rank needs to know no more than how many are left.
  const View counts = scratch.Take(DType::kI32, {exchange.ranks(), exchange.own_rows()});
  ops::Dispatch(step.context, step.ops.index_merge,
                {.scores = scores_of_ranks, .positions = positions_of_ranks, .counts = counts});
  const View own_counts = exchange.StartFromOwners(counts);
  exchange.Finish();
  // Counts that have not come would lead anywhere.
  if (!step.ranks.ok()) return false;
  ops::Dispatch(step.context, step.ops.index_take,
                {.counts = own_counts,
                 .tables = gathered.tables,
                 .page_indices = gathered.page_indices,
                 .page_size = cache.size(2),
                 .positions = selected});
  return true;
}

int64_t SelectAcrossRanksBytes(const StepBounds& bounds, int64_t heads, int64_t dim,
                               int64_t top_k) {
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t all = bounds.gathered_rows;
  const int64_t own = bounds.sharing_ranks * bounds.rows;
  return padded(all * heads * dim * tensor::SizeOf(bounds.compute)) + padded(all * heads * 4) +
         padded(all * top_k * 4) + 2 * padded(own * top_k * 4) + padded(own * 4) + padded(all * 4);
}

}  // namespace longspan::model
