// From step plans to the tables that kernels read.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/page_table.h"
#include "model/step.h"
#include "ops/backend.h"
#include "ops/step_tables.h"
#include "plan/step_plan.h"
#include "tensor/tensor.h"

namespace longspan::runtime {

// Columns of a page table that has room for so many pages: rounded up, by a quarter at most, so
// that the tables of consecutive decode steps have one shape.
int64_t PageTableColumns(int64_t pages);

// The tables of one step in host memory, laid out as in ops/step_tables.h.
struct HostTables {
  int64_t rows = 0;
  int64_t slices = 0;
  int64_t max_pages = 0;  // columns of page_table
  int64_t max_kv_length = 0;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> slice_row_begin;
  std::vector<int32_t> page_table;
  std::vector<model::SliceExtent> extents;  // of the slices; stays on the host
};

// What a rank knows of its sequences: their pages, and no more. Applies plans in order; holds no
// device memory, so that tables can be built while earlier plans still compute.
class SequencePages {
 public:
  SequencePages(int page_size, int64_t pages) : page_size_(page_size), pages_(pages) {}

  // Forgets, starts, appends as the plan says, and builds its tables. DataLoss for what no leader
  // sends: an unknown sequence, a page outside the cache, a position without a page.
  base::Result<HostTables> Apply(const plan::StepPlan& plan);

  int64_t sequences() const { return static_cast<int64_t>(tables_.size()); }

 private:
  base::Status AppendSlice(const plan::Slice& slice, HostTables& tables);

  int page_size_;
  int64_t pages_;
  std::unordered_map<plan::SequenceId, kv::PageTable> tables_;
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
  base::Result<ops::StepTables> Upload(tensor::Queue& queue, const HostTables& tables);

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
