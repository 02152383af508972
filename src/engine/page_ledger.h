// Who has which pages: running sequences, and the tree of prefixes that outlives them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "kv/page_pool.h"
#include "kv/prefix_tree.h"

namespace longspan::engine {

// Decides from its own state only, like the scheduler that it belongs to.
class PageLedger {
 public:
  // Without `reuse_prefixes` no page outlives its sequence.
  PageLedger(int64_t pages, int page_size, bool reuse_prefixes);

  // Gives the sequence `pages` pages: first those of the longest cached prefix of its known tokens
  // that ends before the first row it needs, then free ones, for which it evicts what was used
  // least recently. `left` pages stay available. Sets scheduled, computed and prefill_begin behind
  // the prefix.
  //
  // False, with nothing taken, where pages are missing: a sequence that waits holds none, so that
  // no two can lock each other out. Asking again costs nothing until so many pages have become
  // available or cached that it could succeed; O(new pages) each, all in all.
  bool Reserve(Sequence& sequence, int64_t pages, int64_t left);

  // One more page, evicting if it must; false where there is none.
  bool Grow(Sequence& sequence);

  // Positions below `end` are computed, on every stage: publishes the pages that they fill, as far
  // as their tokens are known. O(new pages).
  void OnComputed(Sequence& sequence, int64_t end);

  // Takes the pages back. Published ones stay cached, and the next plan may use the others: ranks
  // apply plans in order.
  void Release(Sequence& sequence);

  // Drops every cached page that no sequence uses, and returns how many.
  int64_t EvictAll() { return tree_.Evict(tree_.evictable_pages(), pool_); }

  const kv::PagePool& pool() const { return pool_; }
  const kv::PrefixTree& tree() const { return tree_; }
  // What a reservation can have: free pages and cached ones that no sequence uses.
  int64_t available() const { return pool_.free_pages() + tree_.evictable_pages(); }
  // Pages of sequences; none when all have ended.
  int64_t in_use() const { return pool_.pages() - available(); }

 private:
  bool ReusesPrefixes(const Sequence& sequence) const;
  bool MayReserve(const Sequence& sequence, int64_t pages, int64_t usable) const;
  void Match(Sequence& sequence);
  void Take(Sequence& sequence, int64_t pages);
  std::span<const int32_t> PageTokens(const Sequence& sequence, int64_t page);

  bool reuse_prefixes_;
  kv::PagePool pool_;
  kv::PrefixTree tree_;
  int64_t published_ = 0;             // pages, since the start
  std::vector<int32_t> page_tokens_;  // of the page being published, where it is not all prompt
};

}  // namespace longspan::engine
