#include "tests/support/paged_step.h"

#include <algorithm>

#include "tests/support/random_values.h"

namespace longspan::support {

PagedStep::PagedStep(std::span<const SliceRange> slices, std::span<const int64_t> lengths,
                     int64_t page_size, uint64_t seed) {
  LONGSPAN_CHECK(slices.size() == lengths.size(), "{} slices of {} sequences", slices.size(),
                 lengths.size());
  const auto pages_of = [&](int64_t length) { return (length + page_size - 1) / page_size; };
  pages_ = 1;
  for (const int64_t length : lengths) {
    pages_ += pages_of(length);
    max_pages_ = std::max(max_pages_, pages_of(length));
  }
  const std::vector<int32_t> order = RandomPermutation(pages_, seed);
  // Entries beyond a sequence's pages are never read; page 0 would hide a mistake.
  page_table_.assign(slices.size() * max_pages_, order.back());
  int64_t dealt = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    int32_t* table = page_table_.data() + i * max_pages_;
    for (int64_t page = 0; page < pages_of(lengths[i]); ++page) table[page] = order[dealt++];
    LONGSPAN_CHECK(slices[i].end <= lengths[i], "slice {} ends behind its sequence", i);
    for (int64_t position = slices[i].begin; position < slices[i].end; position += slices[i].step) {
      positions_.push_back(static_cast<int32_t>(position));
      slots_.push_back(table[position / page_size] * page_size + position % page_size);
    }
    slice_row_begin_.push_back(static_cast<int32_t>(positions_.size()));
    max_kv_length_ = std::max(max_kv_length_, slices[i].end);
  }
}

ops::StepTables PagedStep::Upload(TestDevice& device) const {
  const auto slices = static_cast<int64_t>(slice_row_begin_.size()) - 1;
  return {.rows = rows(),
          .slices = slices,
          .max_kv_length = max_kv_length_,
          .positions = device.Ints(positions_, {rows()}),
          .slots = device.Longs(slots_, {rows()}),
          .slice_row_begin = device.Ints(slice_row_begin_, {slices + 1}),
          .page_table = device.Ints(page_table_, {slices, max_pages_})};
}

}  // namespace longspan::support
