// The pages of one sequence, in order of its positions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_pool.h"

namespace longspan::kv {

// Append-only; a plain value.
class PageTable {
 public:
  explicit PageTable(int page_size) : page_size_(page_size) {}

  void Append(std::span<const PageId> pages) {
    pages_.insert(pages_.end(), pages.begin(), pages.end());
  }
  std::span<const PageId> pages() const { return pages_; }
  int64_t capacity_tokens() const { return static_cast<int64_t>(pages_.size()) * page_size_; }

  // Where a position's KV lies: page * page_size + offset. 64-bit: a million-token pool has more
  // slots x elements than 31 bits count.
  int64_t Slot(int64_t position) const {
    LONGSPAN_DCHECK(position >= 0 && position < capacity_tokens(), "position {} of {}", position,
                    capacity_tokens());
    return int64_t{pages_[static_cast<size_t>(position / page_size_)]} * page_size_ +
           position % page_size_;
  }

 private:
  int page_size_;
  std::vector<PageId> pages_;
};

}  // namespace longspan::kv
