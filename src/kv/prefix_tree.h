// Which prefixes have their KV in pages of the pool already, so that a sequence can begin with
// them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/chain_hash.h"
#include "kv/page_pool.h"

namespace longspan::kv {

// Where the bytes of a cached page are. Tiers in host memory and on disk will add their values; a
// node then outlives its page of the pool.
enum class Residency : uint8_t { kDevice };

// A tree of whole pages: a node is a page, and the path from the root to it is all that came
// before, so that equal tokens after different beginnings are different pages. A page in the tree
// is in use by the tree, beside the sequences that have it: it outlives them.
//
// A sequence has a cursor: the node that its pages have reached. That node and all above it are
// pinned, they stay until the cursor is released. Of the others the one whose last cursor was
// released first is evicted first, the end of a prefix before its beginning.
//
// A plain value of one thread, decided by the calls alone: no clock, no bytes. Calls take the pool
// that the pages are of, always the same one.
class PrefixTree {
 public:
  // The default is the root: no page. Belongs to one sequence; a copy pins nothing.
  struct Cursor {
    int32_t node = 0;
    int64_t pages = 0;  // from the root to the node
  };
  using HashFunction = ChainHash (*)(ChainHash prefix, std::span<const int32_t> tokens);

  // For a pool of so many pages. The hash function is a parameter for tests.
  PrefixTree(int64_t pages, int page_size, HashFunction hash_page = HashPage);

  // Moves the cursor on over all cached pages of `tokens`, which begin at the sequence's start, and
  // appends them to `pages`, each with the caller as one more user. Only whole pages: give the
  // prompt without the tokens that are to be computed in any case. O(tokens behind the cursor), and
  // never a wrong page: tokens are compared.
  void Match(std::span<const int32_t> tokens, PagePool& pool, Cursor& cursor,
             std::vector<PageId>& pages);

  // Adds the page behind the cursor, which holds the KV of `tokens` (page_size of them) and will
  // not be written again, and moves the cursor there. O(page_size).
  //
  // False where another sequence has published the same page: the cursor moves to that one, and the
  // caller's stays its own, until it releases it. Ranks have been told of it, plans in flight use
  // it, and the tables they keep only ever grow, so it is not swapped; it costs its memory while
  // the sequence runs.
  bool Publish(std::span<const int32_t> tokens, PageId page, PagePool& pool, Cursor& cursor);

  // Lets go of all that the cursor pins and puts it to the root. O(pages of the cursor).
  void Release(Cursor& cursor);

  // Drops up to `count` pages that no cursor pins, and returns how many. O(1) each.
  int64_t Evict(int64_t count, PagePool& pool);

  int64_t cached_pages() const { return cached_; }
  int64_t evictable_pages() const { return evictable_; }
  ChainHash hash(const Cursor& cursor) const { return nodes_[cursor.node].hash; }

 private:
  static constexpr int32_t kRoot = 0;  // never in a bucket: there it stands for the chain's end

  struct Node {
    ChainHash hash;
    int32_t parent = kRoot;
    int32_t next_in_bucket = kRoot;
    PageId page = 0;
    int32_t pins = 0;  // cursors here or below
    // Neighbours in the ring of unpinned nodes, which the root closes: behind it comes the one to
    // be evicted first. A release appends from its cursor up to the root, so that whatever is below
    // a node stands before it and the first one is always a leaf.
    int32_t older = kRoot;
    int32_t newer = kRoot;
    Residency residency = Residency::kDevice;
    std::vector<int32_t> tokens;
  };

  int32_t& Bucket(const ChainHash& hash) { return buckets_[hash.low & (buckets_.size() - 1)]; }
  int32_t Find(int32_t parent, const ChainHash& hash, std::span<const int32_t> tokens);
  int32_t AddNode(int32_t parent, const ChainHash& hash);
  void RemoveNode(int32_t node);
  void Pin(int32_t node);
  void LinkAsNewest(int32_t node);
  void Unlink(int32_t node);

  int page_size_;
  HashFunction hash_page_;
  std::vector<Node> nodes_;  // [0] is the root
  std::vector<int32_t> free_nodes_;
  std::vector<int32_t> buckets_;  // first node of each, by hash; a power of two of them
  int64_t cached_ = 0;
  int64_t evictable_ = 0;
};

}  // namespace longspan::kv
