#include "runtime/listed_rows.h"

#include <vector>

#include "runtime/host_copy.h"

namespace longspan::runtime {
namespace {

using tensor::View;

// Listed rows by the rank that has them.
struct ByRank {
  std::vector<std::vector<int32_t>> rows;  // of every rank: their numbers there
  std::vector<int32_t> places;             // where each listed row comes when all are in a row
};

ByRank SortByRank(std::span<const ListedRow> listed, int ranks) {
  ByRank sorted{.rows = std::vector<std::vector<int32_t>>(static_cast<size_t>(ranks)),
                .places = std::vector<int32_t>(listed.size())};
  int32_t place = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < listed.size(); ++i) {
      if (listed[i].rank != rank) continue;
      sorted.rows[static_cast<size_t>(rank)].push_back(listed[i].row);
      sorted.places[i] = place++;
    }
  }
  return sorted;
}

base::Status GatherRows(const ops::Backend& backend, const model::Step& step,
                        const tensor::ConstView& x, const std::vector<int32_t>& rows,
                        tensor::Workspace::Scope& scope, const View& out) {
  LONGSPAN_ASSIGN_OR_RETURN(const View index, ToDevice(backend, step.context.queue, scope, rows));
  ops::Dispatch(step.context, step.ops.gather_rows, {.x = x, .index = index, .out = out});
  return base::OkStatus();
}

}  // namespace

base::Result<View> GatherListed(const ops::Backend& backend, RankGroups& groups,
                                const model::Step& step, const tensor::ConstView& residual,
                                std::span<const ListedRow> listed,
                                tensor::Workspace::Scope& scope) {
  const auto count = static_cast<int64_t>(listed.size());
  const int64_t hidden = residual.size(1);
  comm::RankGroup* const group = groups.context_group();
  const ByRank sorted = SortByRank(listed, group == nullptr ? 1 : group->size());
  const View all = scope.Take(residual.dtype(), {count, hidden});
  if (group == nullptr) {
    LONGSPAN_RETURN_IF_ERROR(GatherRows(backend, step, residual, sorted.rows[0], scope, all));
    return all;
  }
  int64_t begin = 0;
  std::vector<size_t> sizes;
  for (int rank = 0; rank < group->size(); ++rank) {
    const std::vector<int32_t>& rows = sorted.rows[static_cast<size_t>(rank)];
    const View block = all.Rows(begin, static_cast<int64_t>(rows.size()));
    if (rank == group->rank() && !rows.empty())
      LONGSPAN_RETURN_IF_ERROR(GatherRows(backend, step, residual, rows, scope, block));
    begin += block.size(0);
    sizes.push_back(static_cast<size_t>(block.bytes()));
  }
  LONGSPAN_RETURN_IF_ERROR(groups.Wait(group->AllGather(
      {static_cast<std::byte*>(all.raw()), static_cast<size_t>(all.bytes())}, sizes)));
  const View in_order = scope.Take(residual.dtype(), {count, hidden});
  LONGSPAN_RETURN_IF_ERROR(GatherRows(backend, step, all, sorted.places, scope, in_order));
  return in_order;
}

int64_t GatherListedScratchBytes(int64_t rows, int64_t hidden, tensor::DType compute) {
  const auto padded = tensor::Workspace::PaddedBytes;
  return 2 * padded(rows * hidden * tensor::SizeOf(compute)) +
         2 * padded(rows * tensor::SizeOf(tensor::DType::kI32));
}

}  // namespace longspan::runtime
