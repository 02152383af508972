#include "kv/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace longspan::kv {

PrefixTree::PrefixTree(int64_t pages, int page_size, HashFunction hash_page)
    : page_size_(page_size),
      hash_page_(hash_page),
      nodes_(1),
      buckets_(std::bit_ceil(static_cast<size_t>(pages) + 1), kRoot) {
  LONGSPAN_CHECK(pages >= 0 && page_size > 0, "{} pages of {}", pages, page_size);
  // Address space only, until it is used; so publishing never stops to move all nodes.
  nodes_.reserve(static_cast<size_t>(pages) + 1);
}

void PrefixTree::Match(std::span<const int32_t> tokens, PagePool& pool, Cursor& cursor,
                       std::vector<PageId>& pages) {
  const auto page_size = static_cast<size_t>(page_size_);
  for (auto begin = static_cast<size_t>(cursor.pages) * page_size;
       begin + page_size <= tokens.size(); begin += page_size) {
    const auto page_tokens = tokens.subspan(begin, page_size);
    const int32_t node =
        Find(cursor.node, hash_page_(nodes_[cursor.node].hash, page_tokens), page_tokens);
    if (node == kRoot) return;
    Pin(node);
    pool.Share(nodes_[node].page);
    pages.push_back(nodes_[node].page);
    cursor = {.node = node, .pages = cursor.pages + 1};
  }
}

bool PrefixTree::Publish(std::span<const int32_t> tokens, PageId page, PagePool& pool,
                         Cursor& cursor) {
  LONGSPAN_CHECK(static_cast<int>(tokens.size()) == page_size_, "{} tokens for a page of {}",
                 tokens.size(), page_size_);
  const ChainHash hash = hash_page_(nodes_[cursor.node].hash, tokens);
  int32_t node = Find(cursor.node, hash, tokens);
  const bool is_new = node == kRoot;
  if (is_new) {
    node = AddNode(cursor.node, hash);
    nodes_[node].tokens.assign(tokens.begin(), tokens.end());
    nodes_[node].page = page;
    pool.Share(page);
  }
  Pin(node);
  cursor = {.node = node, .pages = cursor.pages + 1};
  return is_new;
}

void PrefixTree::Release(Cursor& cursor) {
  for (int32_t node = cursor.node; node != kRoot; node = nodes_[node].parent) {
    LONGSPAN_CHECK(nodes_[node].pins > 0, "a cursor is released twice");
    if (--nodes_[node].pins == 0) LinkAsNewest(node);
  }
  cursor = {};
}

int64_t PrefixTree::Evict(int64_t count, PagePool& pool) {
  const int64_t evicted = std::clamp<int64_t>(count, 0, evictable_);
  for (int64_t i = 0; i < evicted; ++i) {
    const int32_t node = nodes_[kRoot].newer;
    const PageId page = nodes_[node].page;
    // Whoever has a cached page has a cursor behind it.
    LONGSPAN_DCHECK(pool.users(page) == 1, "page {} is evicted with {} users", page,
                    pool.users(page));
    Unlink(node);
    RemoveNode(node);
    pool.Release({&page, 1});
  }
  return evicted;
}

int32_t PrefixTree::Find(int32_t parent, const ChainHash& hash, std::span<const int32_t> tokens) {
  for (int32_t node = Bucket(hash); node != kRoot; node = nodes_[node].next_in_bucket) {
    const Node& candidate = nodes_[node];
    if (candidate.hash == hash && candidate.parent == parent &&
        std::equal(tokens.begin(), tokens.end(), candidate.tokens.begin()))
      return node;
  }
  return kRoot;
}

int32_t PrefixTree::AddNode(int32_t parent, const ChainHash& hash) {
  if (free_nodes_.empty()) {
    free_nodes_.push_back(static_cast<int32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const int32_t index = free_nodes_.back();
  free_nodes_.pop_back();
  Node& node = nodes_[index];
  node.hash = hash;
  node.parent = parent;
  node.next_in_bucket = std::exchange(Bucket(hash), index);
  // Counted as evictable for the moment until the caller pins it.
  LinkAsNewest(index);
  ++cached_;
  return index;
}

void PrefixTree::RemoveNode(int32_t node) {
  int32_t* link = &Bucket(nodes_[node].hash);
  while (*link != node) link = &nodes_[*link].next_in_bucket;
  *link = nodes_[node].next_in_bucket;
  free_nodes_.push_back(node);
  --cached_;
}

void PrefixTree::Pin(int32_t node) {
  if (nodes_[node].pins++ == 0) Unlink(node);
}

void PrefixTree::LinkAsNewest(int32_t node) {
  const int32_t newest = nodes_[kRoot].older;
  nodes_[node].older = newest;
  nodes_[node].newer = kRoot;
  nodes_[newest].newer = node;
  nodes_[kRoot].older = node;
  ++evictable_;
}

void PrefixTree::Unlink(int32_t node) {
  const auto [older, newer] = std::pair(nodes_[node].older, nodes_[node].newer);
  nodes_[older].newer = newer;
  nodes_[newer].older = older;
  --evictable_;
}

}  // namespace longspan::kv
