#include "model/cache_writes.h"

#include "model/row_counts.h"

namespace longspan::model {
namespace {

// The elements from `begin` on, seen as a tensor of these sizes.
tensor::View PartOf(const tensor::View& elements, int64_t begin,
                    std::initializer_list<int64_t> sizes) {
  return {elements.Rows(begin, 0).raw(), elements.dtype(), sizes};
}

}  // namespace

CacheWrites::CacheWrites(const Step& step, const LayerCache& cache,
                         tensor::Workspace::Scope& scratch)
    : step_(step), cache_(cache) {
  if (alone()) return;
  int64_t elements = 0;
  for (int plane = 0; plane < kv::kMaxCachePlanes; ++plane)
    if (!cache.planes[plane].empty()) elements += RowElements(plane);
  const GatheredRows& gathered = step.gathered;
  const int64_t rows =
      gathered.sharded ? step.tables.rows + Sum(gathered.incoming) : Sum(gathered.counts);
  buffer_ = scratch.Take(cache.planes[0].dtype(), {rows * elements});
}

void CacheWrites::Start(std::initializer_list<KeptRows> kept) {
  if (step_.gathered.sharded) {
    for (const KeptRows& rows : kept) StartToOwners(rows);
  } else if (!alone()) {
    StartGather(kept);
  } else {
    for (const KeptRows& rows : kept)
      ops::Dispatch(step_.context, step_.ops.cache_write,
                    {.x = rows.x, .slots = step_.tables.slots, .cache = cache_.planes[rows.plane]});
  }
}

void CacheWrites::StartGather(std::initializer_list<KeptRows> kept) {
  const GatheredRows& gathered = step_.gathered;
  int64_t elements = 0;
  for (const KeptRows& rows : kept) elements += RowElements(rows.plane);
  const std::vector<int64_t> counts = Times(gathered.counts, elements);
  Gather& gather = gathers_.emplace_back();
  gather.counts = gathered.counts;
  gather.blocks = TakeElements(Sum(counts));

  int64_t begin = Sum(std::span(counts).first(static_cast<size_t>(gathered.rank)));
  for (const KeptRows& rows : kept) {
    const int64_t own = rows.x.size(0);
    // A block is a cache whose pages hold one row.
    ops::Dispatch(
        step_.context, step_.ops.cache_write,
        {.x = rows.x,
         .slots = gathered.own_places,
         .cache = PartOf(gather.blocks, begin, {own, rows.x.size(1), 1, rows.x.size(2)})});
    gather.planes.push_back(rows.plane);
    begin += own * RowElements(rows.plane);
  }
  step_.ranks.StartGather(gather.blocks, counts);
}

void CacheWrites::StartToOwners(const KeptRows& rows) {
  const GatheredRows& gathered = step_.gathered;
  const int64_t elements = RowElements(rows.plane);
  const int64_t own = rows.x.size(0);
  const tensor::View outgoing = TakeElements(own * elements);
  // As above, in the order of those that keep the rows.
  ops::Dispatch(step_.context, step_.ops.cache_write,
                {.x = rows.x,
                 .slots = gathered.owner_places,
                 .cache = PartOf(outgoing, 0, {own, rows.x.size(1), 1, rows.x.size(2)})});
  Gather& gather = gathers_.emplace_back();
  gather.planes = {rows.plane};
  gather.counts = gathered.incoming;
  gather.blocks = TakeElements(Sum(gathered.incoming) * elements);
  step_.ranks.StartExchange(outgoing, Times(gathered.outgoing, elements), gather.blocks,
                            Times(gathered.incoming, elements));
}

tensor::View CacheWrites::TakeElements(int64_t count) {
  const tensor::View taken = buffer_.Rows(used_, count);
  used_ += count;
  return taken;
}

void CacheWrites::Finish() {
  if (alone()) return;
  step_.ranks.FinishGathers();
  for (const Gather& gather : gathers_) WriteBlocks(gather);
}

void CacheWrites::WriteBlocks(const Gather& gather) {
  int64_t begin = 0;
  int64_t row = 0;
  for (const int64_t count : gather.counts) {
    for (const int plane : gather.planes) {
      const tensor::View& cache = cache_.planes[plane];
      ops::Dispatch(step_.context, step_.ops.cache_write,
                    {.x = PartOf(gather.blocks, begin, {count, cache.size(1), cache.size(3)}),
                     .slots = step_.gathered.slots.Rows(row, count),
                     .cache = cache});
      begin += count * RowElements(plane);
    }
    row += count;
  }
}

}  // namespace longspan::model
