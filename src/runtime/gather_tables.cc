#include "runtime/gather_tables.h"

#include <numeric>

namespace longspan::runtime {

using tensor::DType;

base::Result<GatherTables> GatherTables::Create(const ops::Backend& backend, const Limits& limits) {
  GatherTables tables(backend);
  const int64_t own_bytes = limits.own_rows * tensor::SizeOf(DType::kI64);
  LONGSPAN_ASSIGN_OR_RETURN(tables.own_places_, backend.Allocate(own_bytes));
  LONGSPAN_ASSIGN_OR_RETURN(tables.slots_,
                            backend.Allocate(limits.all_rows * tensor::SizeOf(DType::kI64)));
  if (limits.all_slices == 0) return tables;
  LONGSPAN_ASSIGN_OR_RETURN(tables.owner_places_, backend.Allocate(own_bytes));
  LONGSPAN_ASSIGN_OR_RETURN(tables.page_indices_,
                            backend.Allocate(limits.all_slices * limits.pages_per_sequence *
                                             tensor::SizeOf(DType::kI32)));
  LONGSPAN_ASSIGN_OR_RETURN(
      tables.all_,
      DeviceTables::Create(backend, {.rows = limits.all_rows,
                                     .slices = limits.all_slices,
                                     .pages_per_sequence = limits.pages_per_sequence}));
  return tables;
}

base::Result<tensor::View> GatherTables::Copy(tensor::Queue& queue,
                                              const std::vector<int64_t>& values,
                                              const tensor::Buffer& buffer) const {
  const auto bytes = std::as_bytes(std::span(values));
  if (static_cast<int64_t>(bytes.size()) > buffer.bytes())
    return base::DataLoss("a plan of {} rows is above the limit {}", values.size(),
                          buffer.bytes() / tensor::SizeOf(DType::kI64));
  const tensor::View view = buffer.AsView(DType::kI64, {static_cast<int64_t>(values.size())});
  LONGSPAN_RETURN_IF_ERROR(backend_->Upload(queue, bytes, view));
  return view;
}

base::Result<model::GatheredRows> GatherTables::Upload(tensor::Queue& queue,
                                                       const HostTables& tables, int rank) {
  model::GatheredRows gathered;
  gathered.rank = rank;
  gathered.counts = tables.gathered_counts;
  std::vector<int64_t> places(static_cast<size_t>(tables.rows));
  std::iota(places.begin(), places.end(), int64_t{0});
  LONGSPAN_ASSIGN_OR_RETURN(gathered.own_places, Copy(queue, places, own_places_));
  if (tables.sharded) {
    LONGSPAN_RETURN_IF_ERROR(AddSharded(queue, *tables.sharded, gathered));
    return gathered;
  }
  LONGSPAN_ASSIGN_OR_RETURN(gathered.slots, Copy(queue, tables.gathered_slots, slots_));
  return gathered;
}

base::Status GatherTables::AddSharded(tensor::Queue& queue, const ShardedTables& tables,
                                      model::GatheredRows& gathered) {
  gathered.sharded = true;
  gathered.outgoing = tables.outgoing;
  gathered.incoming = tables.incoming;
  LONGSPAN_ASSIGN_OR_RETURN(gathered.slots, Copy(queue, tables.incoming_slots, slots_));
  LONGSPAN_ASSIGN_OR_RETURN(gathered.owner_places, Copy(queue, tables.owner_places, owner_places_));
  LONGSPAN_ASSIGN_OR_RETURN(gathered.tables, all_->Upload(queue, tables.all));
  const tensor::View page_indices =
      page_indices_.AsView(DType::kI32, {tables.all.slices, tables.all.max_pages});
  LONGSPAN_RETURN_IF_ERROR(
      backend_->Upload(queue, std::as_bytes(std::span(tables.page_indices)), page_indices));
  gathered.page_indices = page_indices;
  return base::OkStatus();
}

int64_t GatherTables::bytes() const {
  return own_places_.bytes() + slots_.bytes() + owner_places_.bytes() + page_indices_.bytes() +
         (all_ ? all_->bytes() : 0);
}

}  // namespace longspan::runtime
