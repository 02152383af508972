#include "model/row_exchange.h"

#include "model/row_counts.h"

namespace longspan::model {

int64_t RowExchange::all_rows() const { return Sum(step_.gathered.counts); }

tensor::View RowExchange::StartGather(const tensor::ConstView& x) {
  const GatheredRows& gathered = step_.gathered;
  const int64_t first = Sum(gathered.counts.first(static_cast<size_t>(gathered.rank)));
  const int64_t heads = x.size(1);
  const int64_t dim = x.size(2);
  const tensor::View rows = scratch_.Take(x.dtype(), {all_rows(), heads, dim});
  const tensor::View own = rows.Rows(first, x.size(0));
  // Dense they are a cache whose pages hold one row.
  ops::Dispatch(step_.context, step_.ops.cache_write,
                {.x = x,
                 .slots = gathered.own_places,
                 .cache = tensor::View(own.raw(), x.dtype(), {x.size(0), heads, 1, dim})});
  step_.ranks.StartGather(rows, Times(gathered.counts, heads * dim));
  return rows;
}

tensor::View RowExchange::StartToOwners(const tensor::View& x) {
  const int64_t columns = x.rank() == 3 ? x.size(1) * x.size(2) : x.size(1);
  const tensor::View own =
      x.rank() == 3 ? scratch_.Take(x.dtype(), {ranks(), own_rows(), x.size(1), x.size(2)})
                    : scratch_.Take(x.dtype(), {ranks(), own_rows(), x.size(1)});
  step_.ranks.StartExchange(x, Times(step_.gathered.counts, columns), own,
                            OfEveryRank(own_rows() * columns));
  return own;
}

tensor::View RowExchange::StartFromOwners(const tensor::View& x) {
  const tensor::View all = scratch_.Take(x.dtype(), {all_rows()});
  step_.ranks.StartExchange(x, OfEveryRank(own_rows()), all, step_.gathered.counts);
  return all;
}

}  // namespace longspan::model
