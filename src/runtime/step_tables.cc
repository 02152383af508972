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

// Where the plan's logits rows are, if rows[r] are those of rank r.
base::Result<std::vector<ListedRow>> ListedRows(const plan::StepPlan& plan,
                                                const std::vector<std::vector<int32_t>>& rows) {
  std::vector<int64_t> first_rows;  // of the slices
  int64_t next = 0;
  for (const plan::Slice& slice : plan.slices) {
    first_rows.push_back(next);
    next += static_cast<int64_t>(slice.tokens.size());
  }
  std::vector<ListedRow> listed;
  for (const plan::LogitsRow& row : plan.logits_rows) {
    if (row.slice >= plan.slices.size() || row.position < plan.slices[row.slice].begin ||
        row.position >= plan.slices[row.slice].end())
      return base::DataLoss("a plan wants logits of position {}, which it does not compute",
                            row.position);
    const int64_t wanted = first_rows[row.slice] + row.position - plan.slices[row.slice].begin;
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      const auto found = std::lower_bound(rows[rank].begin(), rows[rank].end(), wanted);
      if (found == rows[rank].end() || *found != wanted) continue;
      listed.push_back(
          {static_cast<int32_t>(rank), static_cast<int32_t>(found - rows[rank].begin())});
      break;
    }
  }
  return listed;
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
    tables_.insert_or_assign(start.sequence, SequencePageTable(page_size_, page_share_));
  std::vector<plan::SliceRows> slices;
  for (const plan::Slice& slice : plan.slices) {
    LONGSPAN_RETURN_IF_ERROR(Append(slice));
    slices.push_back({slice.begin, slice.end() - slice.begin});
  }
  const auto rows = plan::SplitRows(slices, share_.split, share_.size);
  HostTables tables = TablesOf(plan, rows[static_cast<size_t>(share_.rank)]);
  LONGSPAN_ASSIGN_OR_RETURN(tables.listed, ListedRows(plan, rows));
  if (share_.size == 1) return tables;
  for (const auto& of_rank : rows)
    tables.gathered_counts.push_back(static_cast<int64_t>(of_rank.size()));
  if (page_share_.size > 1) {
    std::vector<const SequencePageTable*> pages;
    for (const plan::Slice& slice : plan.slices) pages.push_back(&tables_.at(slice.sequence));
    tables.sharded = BuildShardedTables(plan, rows, pages, page_size_, page_share_);
    return tables;
  }
  const std::vector<int64_t> slots = SlotsOf(plan);
  for (const auto& of_rank : rows)
    for (const int32_t row : of_rank)
      tables.gathered_slots.push_back(slots[static_cast<size_t>(row)]);
  return tables;
}

base::Status SequencePages::Append(const plan::Slice& slice) {
  const auto found = tables_.find(slice.sequence);
  if (found == tables_.end())
    return base::DataLoss("a plan has rows of sequence {}, which was not started",
                          slice.sequence.value);
  for (const kv::PageId page : slice.new_pages)
    if (page < 0 || page >= pages_)
      return base::DataLoss("a plan uses page {} of a cache of {} pages", page, pages_);
  if (page_share_.size > 1) found->second.own.Append(slice.new_pages);
  kv::PageTable& pages = found->second.all;
  pages.Append(slice.new_pages);
  if (slice.end() > pages.capacity_tokens())
    return base::DataLoss(
        "a plan computes position {} of sequence {}, which has pages for {} tokens",
        slice.end() - 1, slice.sequence.value, pages.capacity_tokens());
  return base::OkStatus();
}

HostTables SequencePages::TablesOf(const plan::StepPlan& plan,
                                   const std::vector<int32_t>& rows) const {
  HostTables tables;
  tables.rows = static_cast<int64_t>(rows.size());
  tables.positions.reserve(rows.size());
  tables.slots.reserve(rows.size());
  tables.tokens.reserve(rows.size());
  std::vector<const kv::PageTable*> page_tables;
  auto row = rows.begin();
  int64_t first_row = 0;  // of the slice in the plan
  for (const plan::Slice& slice : plan.slices) {
    const auto count = static_cast<int64_t>(slice.tokens.size());
    const auto begin = row;
    const kv::PageTable& pages = tables_.at(slice.sequence).all;
    for (; row != rows.end() && *row < first_row + count; ++row) {
      const int64_t offset = *row - first_row;
      tables.positions.push_back(static_cast<int32_t>(slice.begin + offset));
      tables.slots.push_back(pages.Slot(slice.begin + offset));
      tables.tokens.push_back(slice.tokens[static_cast<size_t>(offset)]);
    }
    first_row += count;
    tables.max_kv_length = std::max(tables.max_kv_length, slice.end());
    if (row == begin) continue;
    tables.slice_row_begin.push_back(static_cast<int32_t>(tables.positions.size()));
    tables.extents.push_back({slice.begin, slice.end(), row - begin});
    page_tables.push_back(&pages);
  }

  tables.slices = static_cast<int64_t>(page_tables.size());
  tables.max_pages = PageTableColumns(kv::PagesFor(tables.max_kv_length, page_size_));
  tables.page_table.resize(page_tables.size() * static_cast<size_t>(tables.max_pages));
  for (size_t i = 0; i < page_tables.size(); ++i) {
    const auto pages = page_tables[i]->pages();
    const auto count = std::min<int64_t>(tables.max_pages, static_cast<int64_t>(pages.size()));
    std::copy_n(pages.begin(), count,
                tables.page_table.begin() + static_cast<int64_t>(i) * tables.max_pages);
  }
  return tables;
}

std::vector<int64_t> SequencePages::SlotsOf(const plan::StepPlan& plan) const {
  std::vector<int64_t> slots;
  for (const plan::Slice& slice : plan.slices) {
    const kv::PageTable& pages = tables_.at(slice.sequence).all;
    for (int64_t position = slice.begin; position < slice.end(); ++position)
      slots.push_back(pages.Slot(position));
  }
  return slots;
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

base::Result<ops::StepTables> DeviceTables::Upload(tensor::Queue& queue, const RowTables& tables) {
  if (tables.rows > limits_.rows || tables.slices > limits_.slices ||
      tables.max_pages > limits_.pages_per_sequence)
    return base::DataLoss(
        "a plan of {} rows, {} slices and {} pages is above the limits {}, {} and {}", tables.rows,
        tables.slices, tables.max_pages, limits_.rows, limits_.slices, limits_.pages_per_sequence);
  const auto positions = positions_.AsView(DType::kI32, {tables.rows});
  const auto slots = slots_.AsView(DType::kI64, {static_cast<int64_t>(tables.slots.size())});
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
