// Which of a sequence's pages a context-parallel rank has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/page_table.h"
#include "plan/page_share.h"

namespace longspan::runtime {

// Grows with the sequence, so that a step costs what it reads. A plain value.
class OwnPages {
 public:
  OwnPages(int page_size, const plan::PageShare& share) : page_size_(page_size), share_(share) {}

  void Append(std::span<const kv::PageId> pages) {
    for (const kv::PageId page : pages) {
      if (share_.Has(page)) {
        numbers_.push_back(share_.NumberOf(page));
        indices_.push_back(static_cast<int32_t>(before_.size()) - 1);
      }
      before_.push_back(static_cast<int32_t>(numbers_.size()));
    }
  }

  // Of the positions [0, position] so many are in them; `has` says whether the last one's page is.
  int64_t Seen(int64_t position, bool has) const {
    return int64_t{before_[static_cast<size_t>(position / page_size_)]} * page_size_ +
           (has ? position % page_size_ + 1 : 0);
  }

  // In the order of the sequence: their numbers in the rank's cache, and which pages of the
  // sequence they are.
  std::span<const kv::PageId> numbers() const { return numbers_; }
  std::span<const int32_t> indices() const { return indices_; }

 private:
  int64_t page_size_;
  plan::PageShare share_;
  std::vector<int32_t> before_ = {0};  // how many come before every page of the sequence
  std::vector<kv::PageId> numbers_;
  std::vector<int32_t> indices_;
};

// All pages of a sequence, and those of them that the rank has.
struct SequencePageTable {
  SequencePageTable(int page_size, const plan::PageShare& share)
      : all(page_size), own(page_size, share) {}

  kv::PageTable all;
  OwnPages own;  // filled where ranks divide the cache
};

}  // namespace longspan::runtime
