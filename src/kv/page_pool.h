// Which pages of the KV cache are in use, and by how many.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace longspan::kv {

// A page holds page_size consecutive tokens of one sequence, in every layer of every stage under
// the same number.
using PageId = int32_t;

// Pages needed for so many tokens.
constexpr int64_t PagesFor(int64_t tokens, int page_size) {
  return tokens / page_size + (tokens % page_size != 0);
}

// Hands out pages and counts their users. A plain value of one thread: it knows nothing of the
// bytes.
class PagePool {
 public:
  PagePool(int64_t pages, int page_size);

  int page_size() const { return page_size_; }
  int64_t pages() const { return static_cast<int64_t>(users_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t capacity_tokens() const { return pages() * page_size_; }

  // `count` pages with one user each, lowest-numbered of a fresh pool first; ResourceExhausted,
  // with nothing taken, when fewer are free: the message says how many tokens would fit.
  base::Result<std::vector<PageId>> Acquire(int64_t count);

  // One more user of a page in use.
  void Share(PageId page);

  // One user less; a page without users is free again.
  void Release(std::span<const PageId> pages);

  int users(PageId page) const { return users_[static_cast<size_t>(page)]; }

 private:
  int page_size_;
  std::vector<int> users_;
  std::vector<PageId> free_;  // a stack: the page freed last is still in the caches of the machine
};

}  // namespace longspan::kv
