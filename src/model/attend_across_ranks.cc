#include "model/attend_across_ranks.h"

#include "model/row_counts.h"

namespace longspan::model {
namespace {

int64_t RowElements(const tensor::View& x) { return x.size(0) == 0 ? 0 : x.elements() / x.size(0); }

}  // namespace

std::vector<tensor::ConstView> DividedAttention::GatherQueries(
    std::span<const tensor::ConstView> queries) {
  const GatheredRows& gathered = step_.gathered;
  const int64_t first = Sum(gathered.counts.first(static_cast<size_t>(gathered.rank)));
  std::vector<tensor::ConstView> all;
  for (const tensor::ConstView& x : queries) {
    const int64_t heads = x.size(1);
    const int64_t dim = x.size(2);
    const tensor::View rows = scratch_.Take(x.dtype(), {Sum(gathered.counts), heads, dim});
    const tensor::View own = rows.Rows(first, x.size(0));
    // Dense they are a cache whose pages hold one row.
    ops::Dispatch(step_.context, step_.ops.cache_write,
                  {.x = x,
                   .slots = gathered.own_places,
                   .cache = tensor::View(own.raw(), x.dtype(), {x.size(0), heads, 1, dim})});
    step_.ranks.StartGather(rows, Times(gathered.counts, heads * dim));
    all.emplace_back(rows);
  }
  step_.ranks.FinishGathers();
  return all;
}

PartOfAttention DividedAttention::TakePart(const tensor::View& out) {
  const int64_t rows = Sum(step_.gathered.counts);
  return {.out = scratch_.Take(out.dtype(), {rows, out.size(1), out.size(2)}),
          .log_sums = scratch_.Take(tensor::DType::kF32, {rows, out.size(1)})};
}

tensor::View DividedAttention::StartExchange(const tensor::View& x,
                                             std::initializer_list<int64_t> sizes) {
  const tensor::View own = scratch_.Take(x.dtype(), sizes);
  const auto ranks = static_cast<int64_t>(step_.gathered.counts.size());
  const std::vector<int64_t> incoming(static_cast<size_t>(ranks), own.elements() / ranks);
  step_.ranks.StartExchange(x, Times(step_.gathered.counts, RowElements(x)), own, incoming);
  return own;
}

void DividedAttention::Merge(const PartOfAttention& part, const tensor::View& out) {
  const auto ranks = static_cast<int64_t>(step_.gathered.counts.size());
  const int64_t rows = out.size(0);
  const int64_t heads = out.size(1);
  const tensor::View parts = StartExchange(part.out, {ranks, rows, heads, out.size(2)});
  const tensor::View log_sums = StartExchange(part.log_sums, {ranks, rows, heads});
  step_.ranks.FinishGathers();
  ops::Dispatch(step_.context, step_.ops.merge_attention,
                {.parts = parts, .log_sums = log_sums, .out = out});
}

int64_t DividedAttentionBytes(const StepBounds& bounds, int64_t query_elements,
                              int64_t out_elements, int64_t heads) {
  if (bounds.sharing_ranks == 0) return 0;
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t element = tensor::SizeOf(bounds.compute);
  const int64_t own = bounds.sharing_ranks * bounds.rows;
  // Two kinds of queries at most, each with its padding.
  return padded(bounds.gathered_rows * query_elements * element) + padded(1) +
         padded(bounds.gathered_rows * out_elements * element) +
         padded(bounds.gathered_rows * heads * 4) + padded(own * out_elements * element) +
         padded(own * heads * 4);
}

}  // namespace longspan::model
