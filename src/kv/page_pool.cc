#include "kv/page_pool.h"

#include <numeric>

namespace longspan::kv {

PagePool::PagePool(int64_t pages, int page_size)
    : page_size_(page_size),
      users_(static_cast<size_t>(pages), 0),
      free_(static_cast<size_t>(pages)) {
  LONGSPAN_CHECK(pages >= 0 && page_size > 0, "{} pages of {}", pages, page_size);
  std::iota(free_.rbegin(), free_.rend(), PageId{0});
}

base::Result<std::vector<PageId>> PagePool::Acquire(int64_t count) {
  LONGSPAN_CHECK(count >= 0, "{} pages asked for", count);
  if (count > free_pages()) {
    return base::ResourceExhausted(
        "{} tokens of KV cache are needed and {} are free of {}: shorten the prompt or raise "
        "--max-total-tokens",
        count * page_size_, free_pages() * page_size_, capacity_tokens());
  }
  std::vector<PageId> pages(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - static_cast<size_t>(count));
  for (const PageId page : pages) users_[static_cast<size_t>(page)] = 1;
  return pages;
}

void PagePool::Share(PageId page) {
  LONGSPAN_CHECK(users(page) > 0, "page {} is free and cannot be shared", page);
  ++users_[static_cast<size_t>(page)];
}

void PagePool::Release(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    int& count = users_[static_cast<size_t>(page)];
    LONGSPAN_CHECK(count > 0, "page {} is released twice", page);
    if (--count == 0) free_.push_back(page);
  }
}

}  // namespace longspan::kv
