// Step tables over a paged cache whose pages lie in no order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/step_tables.h"
#include "tests/support/test_device.h"

namespace longspan::support {

// Rows of one sequence: positions begin, begin + step ... below end.
struct SliceRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
};

// The tables of one step, on the host.
class PagedStep {
 public:
  // Every sequence owns pages for `lengths[i]` tokens, dealt at random from a cache that has one
  // page more than all of them need; slice i is of sequence i. Pages depend on lengths, page_size
  // and seed only, so that steps over the same cache agree about them.
  PagedStep(std::span<const SliceRange> slices, std::span<const int64_t> lengths, int64_t page_size,
            uint64_t seed);

  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  int64_t pages() const { return pages_; }
  ops::StepTables Upload(TestDevice& device) const;

 private:
  int64_t pages_ = 0;
  int64_t max_pages_ = 0;  // of a sequence
  int64_t max_kv_length_ = 0;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slots_;
  std::vector<int32_t> slice_row_begin_ = {0};
  std::vector<int32_t> page_table_;
};

}  // namespace longspan::support
