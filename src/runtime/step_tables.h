// From step plans to the tables that kernels read.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/page_table.h"
#include "model/step.h"
#include "ops/backend.h"
#include "ops/step_tables.h"
#include "plan/step_plan.h"
#include "plan/token_split.h"
#include "runtime/sharded_tables.h"
#include "tensor/tensor.h"

namespace longspan::runtime {

// Columns of a page table that has room for so many pages: rounded up, by a quarter at most, so
// that the tables of consecutive decode steps have one shape.
int64_t PageTableColumns(int64_t pages);

// A row that needs logits: the number that it has at a context-parallel rank.
struct ListedRow {
  int32_t rank = 0;
  int32_t row = 0;
};

// The tables of one step in host memory, laid out as in ops/step_tables.h: of the rows that a
// context-parallel rank has of it, and of the slices that these are of.
struct HostTables : RowTables {
  // What follows stays on the host.
  std::vector<model::SliceExtent> extents;  // of the slices
  std::vector<plan::TokenSource> tokens;    // of the rows
  std::vector<ListedRow> listed;            // the plan's logits rows
  // Of several context-parallel ranks: how many rows each has; and where every one has the whole
  // cache, on the device, where the rows of the first are cached, those of the second, and so on;
  // or what there is to know where they divide it.
  std::vector<int64_t> gathered_counts;
  std::vector<int64_t> gathered_slots;
  std::optional<ShardedTables> sharded;
};

// What a rank knows of its sequences: their pages, and no more. Applies plans in order; holds no
// device memory, so that tables can be built while earlier plans still compute.
class SequencePages {
 public:
  // `share`: whose rows of a plan the tables are of; `page_share`: which pages it has.
  SequencePages(int page_size, int64_t pages, const plan::ContextShare& share = {},
                const plan::PageShare& page_share = {})
      : page_size_(page_size), pages_(pages), share_(share), page_share_(page_share) {}

  // Forgets, starts, appends as the plan says, and builds its tables. DataLoss for what no leader
  // sends: an unknown sequence, a page outside the cache, a position without a page, logits of no
  // row of the plan.
  base::Result<HostTables> Apply(const plan::StepPlan& plan);

  int64_t sequences() const { return static_cast<int64_t>(tables_.size()); }

 private:
  // Takes the slice's new pages.
  base::Status Append(const plan::Slice& slice);
  // The tables of these rows of the plan.
  HostTables TablesOf(const plan::StepPlan& plan, const std::vector<int32_t>& rows) const;
  // Where all rows of the plan are cached, in its order.
  std::vector<int64_t> SlotsOf(const plan::StepPlan& plan) const;

  int page_size_;
  int64_t pages_;
  plan::ContextShare share_;
  plan::PageShare page_share_;
  std::unordered_map<plan::SequenceId, SequencePageTable> tables_;
};

// The device's copies, allocated once for the largest step.
class DeviceTables {
 public:
  struct Limits {
    int64_t rows = 0;
    int64_t slices = 0;
    int64_t pages_per_sequence = 0;
  };
  static base::Result<DeviceTables> Create(const ops::Backend& backend, const Limits& limits);

  // Views that are valid until the next Upload.
  base::Result<ops::StepTables> Upload(tensor::Queue& queue, const RowTables& tables);

  int64_t bytes() const;

 private:
  DeviceTables(const ops::Backend& backend, const Limits& limits)
      : backend_(&backend), limits_(limits) {}

  const ops::Backend* backend_;
  Limits limits_;
  tensor::Buffer positions_;
  tensor::Buffer slots_;
  tensor::Buffer slice_row_begin_;
  tensor::Buffer page_table_;
};

}  // namespace longspan::runtime
