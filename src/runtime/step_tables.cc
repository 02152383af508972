#include "runtime/step_tables.h"

#include <algorithm>
#include <bit>

namespace longspan::runtime {
namespace {

using tensor::DType;

base::Status UploadVector(const ops::Backend& backend, tensor::Queue& queue, auto& values,
                          const tensor::View& device) {
  return backend.Upload(queue, std::as_bytes(std::span(values)), device);
}

}  // namespace

int64_t PageTableColumns(int64_t pages) {
  constexpr int64_t kFewest = 16;
  const auto power =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max(pages, kFewest))));
  const int64_t step = power / 4;
  return std::max(kFewest, (pages + step - 1) / step * step);
}

base::Result<HostTables> SequencePages::Apply(const plan::StepPlan& plan) {
  for (const plan::SequenceId id : plan.released) tables_.erase(id);
  for (const plan::SequenceStart& start : plan.started)
    tables_.insert_or_assign(start.sequence, kv::PageTable(page_size_));

  HostTables tables;
  tables.slices = static_cast<int64_t>(plan.slices.size());
  tables.rows = plan.rows();
  tables.positions.reserve(static_cast<size_t>(tables.rows));
  tables.slots.reserve(static_cast<size_t>(tables.rows));
  tables.slice_row_begin.push_back(0);
  for (const plan::Slice& slice : plan.slices) LONGSPAN_RETURN_IF_ERROR(AppendSlice(slice, tables));

  tables.max_pages = PageTableColumns(kv::PagesFor(tables.max_kv_length, page_size_));
  tables.page_table.resize(static_cast<size_t>(tables.slices * tables.max_pages));
  for (int64_t i = 0; i < tables.slices; ++i) {
    const auto pages = tables_.at(plan.slices[i].sequence).pages();
    const auto count = std::min<int64_t>(tables.max_pages, static_cast<int64_t>(pages.size()));
    std::copy_n(pages.begin(), count, tables.page_table.begin() + i * tables.max_pages);
  }
  return tables;
}

base::Status SequencePages::AppendSlice(const plan::Slice& slice, HostTables& tables) {
  const auto found = tables_.find(slice.sequence);
  if (found == tables_.end())
    return base::DataLoss("a plan has rows of sequence {}, which was not started",
                          slice.sequence.value);
  for (const kv::PageId page : slice.new_pages)
    if (page < 0 || page >= pages_)
      return base::DataLoss("a plan uses page {} of a cache of {} pages", page, pages_);
  kv::PageTable& pages = found->second;
  pages.Append(slice.new_pages);
  if (slice.end() > pages.capacity_tokens())
    return base::DataLoss(
        "a plan computes position {} of sequence {}, which has pages for {} tokens",
        slice.end() - 1, slice.sequence.value, pages.capacity_tokens());
  for (int64_t position = slice.begin; position < slice.end(); ++position) {
    tables.positions.push_back(static_cast<int32_t>(position));
    tables.slots.push_back(pages.Slot(position));
  }
  tables.slice_row_begin.push_back(static_cast<int32_t>(tables.positions.size()));
  tables.extents.push_back({slice.begin, slice.end() - slice.begin});
  tables.max_kv_length = std::max(tables.max_kv_length, slice.end());
  return base::OkStatus();
}

base::Result<DeviceTables> DeviceTables::Create(const ops::Backend& backend, const Limits& limits) {
  DeviceTables tables(backend, limits);
  LONGSPAN_ASSIGN_OR_RETURN(tables.positions_,
                            backend.Allocate(limits.rows * tensor::SizeOf(DType::kI32)));
  LONGSPAN_ASSIGN_OR_RETURN(tables.slots_,
                            backend.Allocate(limits.rows * tensor::SizeOf(DType::kI64)));
  LONGSPAN_ASSIGN_OR_RETURN(tables.slice_row_begin_,
                            backend.Allocate((limits.slices + 1) * tensor::SizeOf(DType::kI32)));
  LONGSPAN_ASSIGN_OR_RETURN(
      tables.page_table_,
      backend.Allocate(limits.slices * limits.pages_per_sequence * tensor::SizeOf(DType::kI32)));
  return tables;
}

base::Result<ops::StepTables> DeviceTables::Upload(tensor::Queue& queue, const HostTables& tables) {
  if (tables.rows > limits_.rows || tables.slices > limits_.slices ||
      tables.max_pages > limits_.pages_per_sequence)
    return base::DataLoss(
        "a plan of {} rows, {} slices and {} pages is above the limits {}, {} and {}", tables.rows,
        tables.slices, tables.max_pages, limits_.rows, limits_.slices, limits_.pages_per_sequence);
  const auto positions = positions_.AsView(DType::kI32, {tables.rows});
  const auto slots = slots_.AsView(DType::kI64, {tables.rows});
  const auto slice_row_begin = slice_row_begin_.AsView(DType::kI32, {tables.slices + 1});
  const auto page_table = page_table_.AsView(DType::kI32, {tables.slices, tables.max_pages});
  LONGSPAN_RETURN_IF_ERROR(UploadVector(*backend_, queue, tables.positions, positions));
  LONGSPAN_RETURN_IF_ERROR(UploadVector(*backend_, queue, tables.slots, slots));
  LONGSPAN_RETURN_IF_ERROR(UploadVector(*backend_, queue, tables.slice_row_begin, slice_row_begin));
  LONGSPAN_RETURN_IF_ERROR(UploadVector(*backend_, queue, tables.page_table, page_table));
  return ops::StepTables{.rows = tables.rows,
                         .slices = tables.slices,
                         .max_kv_length = tables.max_kv_length,
                         .positions = positions,
                         .slots = slots,
                         .slice_row_begin = slice_row_begin,
                         .page_table = page_table};
}

int64_t DeviceTables::bytes() const {
  return positions_.bytes() + slots_.bytes() + slice_row_begin_.bytes() + page_table_.bytes();
}

}  // namespace longspan::runtime
