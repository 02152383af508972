// Which pages of a cache a context-parallel rank keeps.
#pragma once

#include <cstdint>

#include "kv/page_pool.h"

namespace longspan::plan {

enum class KvPlacement : uint8_t {
  kReplicated,  // every rank has every page
  kSharded,     // page p is at rank p mod N, as its page p div N
};

// One of `size` ranks among which pages are dealt in turn.
struct PageShare {
  int rank = 0;
  int size = 1;

  constexpr int OwnerOf(kv::PageId page) const { return page % size; }
  constexpr bool Has(kv::PageId page) const { return OwnerOf(page) == rank; }
  // Its number at its owner.
  constexpr kv::PageId NumberOf(kv::PageId page) const { return page / size; }
  // How many of the first `pages` the rank has.
  constexpr int64_t CountOf(int64_t pages) const { return (pages - rank + size - 1) / size; }
};

}  // namespace longspan::plan
