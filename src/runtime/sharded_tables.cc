#include "runtime/sharded_tables.h"

#include <algorithm>
#include <numeric>

#include "runtime/step_tables.h"

namespace longspan::runtime {
namespace {

// A slice as a rank sees it that has some of its sequence's pages.
class SharedSlice {
 public:
  SharedSlice(int64_t begin, const SequencePageTable& pages, int page_size,
              const plan::PageShare& share)
      : begin_(begin), pages_(pages), page_size_(page_size), share_(share) {}

  int64_t begin() const { return begin_; }
  const OwnPages& own() const { return pages_.own; }

  kv::PageId PageOf(int64_t position) const {
    return pages_.all.pages()[static_cast<size_t>(position / page_size_)];
  }
  // In the owner's cache.
  int64_t SlotOf(int64_t position) const {
    return int64_t{share_.NumberOf(PageOf(position))} * page_size_ + position % page_size_;
  }
  // Of the positions [0, position] so many are in the rank's pages.
  int64_t Seen(int64_t position) const {
    return pages_.own.Seen(position, share_.Has(PageOf(position)));
  }

 private:
  int64_t begin_;
  const SequencePageTable& pages_;
  int64_t page_size_;
  plan::PageShare share_;
};

class Builder {
 public:
  Builder(const plan::StepPlan& plan, std::span<const SequencePageTable* const> pages,
          int page_size, const plan::PageShare& share)
      : page_size_(page_size), share_(share) {
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      slices_.emplace_back(plan.slices[i].begin, *pages[i], page_size, share);
      row_begin_.push_back(row_begin_.back() + static_cast<int64_t>(plan.slices[i].tokens.size()));
    }
    tables_.outgoing.resize(static_cast<size_t>(share.size));
  }

  ShardedTables Build(const std::vector<std::vector<int32_t>>& rows) {
    for (const auto& of_rank : rows) {
      AddIncoming(of_rank);
      AddRows(of_rank);
    }
    AddOutgoing(rows[static_cast<size_t>(share_.rank)]);
    FillPageTable();
    return std::move(tables_);
  }

 private:
  size_t SliceOf(int32_t row) const {
    return static_cast<size_t>(std::upper_bound(row_begin_.begin(), row_begin_.end(), row) -
                               row_begin_.begin() - 1);
  }
  int64_t PositionOf(size_t slice, int32_t row) const {
    return slices_[slice].begin() + row - row_begin_[slice];
  }

  void AddIncoming(const std::vector<int32_t>& rows) {
    const size_t before = tables_.incoming_slots.size();
    for (const int32_t row : rows) {
      const size_t slice = SliceOf(row);
      const int64_t position = PositionOf(slice, row);
      if (share_.Has(slices_[slice].PageOf(position)))
        tables_.incoming_slots.push_back(slices_[slice].SlotOf(position));
    }
    tables_.incoming.push_back(static_cast<int64_t>(tables_.incoming_slots.size() - before));
  }

  void AddRows(const std::vector<int32_t>& rows) {
    RowTables& all = tables_.all;
    for (auto row = rows.begin(); row != rows.end();) {
      const size_t slice = SliceOf(*row);
      for (; row != rows.end() && *row < row_begin_[slice + 1]; ++row) {
        const int64_t seen = slices_[slice].Seen(PositionOf(slice, *row));
        all.positions.push_back(static_cast<int32_t>(seen - 1));
        all.max_kv_length = std::max(all.max_kv_length, seen);
      }
      all.slice_row_begin.push_back(static_cast<int32_t>(all.positions.size()));
      slices_of_all_.push_back(slice);
    }
  }

  void AddOutgoing(const std::vector<int32_t>& rows) {
    std::vector<size_t> owners;
    for (const int32_t row : rows) {
      const size_t slice = SliceOf(row);
      owners.push_back(
          static_cast<size_t>(share_.OwnerOf(slices_[slice].PageOf(PositionOf(slice, row)))));
      ++tables_.outgoing[owners.back()];
    }
    std::vector<int64_t> next(tables_.outgoing.size());
    std::exclusive_scan(tables_.outgoing.begin(), tables_.outgoing.end(), next.begin(), int64_t{0});
    for (const size_t owner : owners) tables_.owner_places.push_back(next[owner]++);
  }

  void FillPageTable() {
    RowTables& all = tables_.all;
    all.rows = static_cast<int64_t>(all.positions.size());
    all.slices = static_cast<int64_t>(slices_of_all_.size());
    all.max_pages = PageTableColumns(kv::PagesFor(all.max_kv_length, page_size_));
    const auto columns = static_cast<size_t>(all.max_pages);
    all.page_table.resize(slices_of_all_.size() * columns);
    tables_.page_indices.resize(all.page_table.size());
    for (size_t i = 0; i < slices_of_all_.size(); ++i) {
      const OwnPages& own = slices_[slices_of_all_[i]].own();
      // Pages that are reserved for later positions nobody sees yet.
      const size_t count = std::min(columns, own.numbers().size());
      const auto begin = static_cast<ptrdiff_t>(i * columns);
      std::copy_n(own.numbers().begin(), count, all.page_table.begin() + begin);
      std::copy_n(own.indices().begin(), count, tables_.page_indices.begin() + begin);
    }
  }

  int page_size_;
  plan::PageShare share_;
  std::vector<SharedSlice> slices_;
  std::vector<int64_t> row_begin_ = {0};
  std::vector<size_t> slices_of_all_;
  ShardedTables tables_;
};

}  // namespace

ShardedTables BuildShardedTables(const plan::StepPlan& plan,
                                 const std::vector<std::vector<int32_t>>& rows,
                                 std::span<const SequencePageTable* const> pages, int page_size,
                                 const plan::PageShare& share) {
  return Builder(plan, pages, page_size, share).Build(rows);
}

}  // namespace longspan::runtime
