#include "kv/prefix_tree.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<int32_t>;

constexpr int kPageSize = 2;

// All pages have the same name.
ChainHash CollidingHash(ChainHash, std::span<const int32_t>) { return {.low = 7, .high = 7}; }

// A tree with its pool, and sequences that walk it.
class Cache {
 public:
  explicit Cache(int64_t pages, PrefixTree::HashFunction hash = HashPage)
      : pool(pages, kPageSize), tree(pages, kPageSize, hash) {}

  struct Sequence {
    PrefixTree::Cursor cursor;
    std::vector<PageId> pages;
  };

  Sequence Match(const Tokens& tokens) {
    Sequence sequence;
    tree.Match(tokens, pool, sequence.cursor, sequence.pages);
    return sequence;
  }

  // Takes a page for the sequence's next tokens and publishes it.
  bool Append(Sequence& sequence, const Tokens& tokens) {
    sequence.pages.push_back(pool.Acquire(1).value().front());
    return tree.Publish(tokens, sequence.pages.back(), pool, sequence.cursor);
  }

  void Retire(Sequence& sequence) {
    tree.Release(sequence.cursor);
    pool.Release(sequence.pages);
    sequence.pages.clear();
  }

  // A sequence that has come and gone.
  std::vector<PageId> Leave(const Tokens& tokens) {
    Sequence sequence = Match(tokens);
    for (size_t i = sequence.pages.size() * kPageSize; i + kPageSize <= tokens.size();
         i += kPageSize)
      Append(sequence, {tokens.begin() + i, tokens.begin() + i + kPageSize});
    std::vector<PageId> pages = sequence.pages;
    Retire(sequence);
    return pages;
  }

  std::vector<PageId> Cached(const Tokens& tokens) {
    Sequence sequence = Match(tokens);
    std::vector<PageId> pages = sequence.pages;
    Retire(sequence);
    return pages;
  }

  PagePool pool;
  PrefixTree tree;
};

TEST(PrefixTreeTest, FindsTheLongestPrefixInWholePages) {
  Cache cache(8);
  const auto pages = cache.Leave({1, 2, 3, 4, 5, 6});
  ASSERT_EQ(pages.size(), 3u);
  EXPECT_THAT(cache.Cached({1, 2, 3, 4, 5, 6, 7, 8}), ElementsAre(pages[0], pages[1], pages[2]));
  EXPECT_THAT(cache.Cached({1, 2, 3, 4, 5}), ElementsAre(pages[0], pages[1]));
  EXPECT_THAT(cache.Cached({1, 2, 9, 4, 5, 6}), ElementsAre(pages[0]));
  EXPECT_THAT(cache.Cached({1}), IsEmpty());
  EXPECT_THAT(cache.Cached({}), IsEmpty());
  EXPECT_THAT(cache.Cached({3, 4}), IsEmpty()) << "a page after another beginning";
  EXPECT_EQ(cache.tree.cached_pages(), 3);
  EXPECT_EQ(cache.tree.evictable_pages(), 3);
  EXPECT_EQ(cache.pool.free_pages(), 5);
}

TEST(PrefixTreeTest, BranchesShareTheirBeginning) {
  Cache cache(8);
  const auto left = cache.Leave({1, 2, 3, 4});
  const auto right = cache.Leave({1, 2, 5, 6});
  EXPECT_EQ(left[0], right[0]);
  EXPECT_NE(left[1], right[1]);
  EXPECT_EQ(cache.tree.cached_pages(), 3);
  EXPECT_THAT(cache.Cached({1, 2, 5, 6}), ElementsAre(left[0], right[1]));
}

TEST(PrefixTreeTest, AMatchGoesOnFromItsCursor) {
  Cache cache(8);
  Cache::Sequence waiting = cache.Match({1, 2, 3, 4});
  EXPECT_THAT(waiting.pages, IsEmpty());
  const auto pages = cache.Leave({1, 2, 3, 4});
  cache.tree.Match(Tokens{1, 2}, cache.pool, waiting.cursor, waiting.pages);
  EXPECT_THAT(waiting.pages, ElementsAre(pages[0]));
  cache.tree.Match(Tokens{1, 2, 3, 4}, cache.pool, waiting.cursor, waiting.pages);
  EXPECT_THAT(waiting.pages, ElementsAre(pages[0], pages[1]));
  cache.Retire(waiting);
}

TEST(PrefixTreeTest, TheSecondPublisherKeepsItsDuplicateToItself) {
  Cache cache(8);
  Cache::Sequence first;
  Cache::Sequence second;
  EXPECT_TRUE(cache.Append(first, {1, 2}));
  EXPECT_FALSE(cache.Append(second, {1, 2}));
  EXPECT_EQ(cache.pool.users(second.pages[0]), 1);
  // It goes on below the shared page.
  EXPECT_TRUE(cache.Append(second, {3, 4}));
  EXPECT_EQ(cache.pool.free_pages(), 5);
  const std::vector<PageId> want = {first.pages[0], second.pages[1]};
  cache.Retire(first);
  EXPECT_EQ(cache.tree.evictable_pages(), 0) << "the second stands on the first one's page";
  cache.Retire(second);
  EXPECT_EQ(cache.pool.free_pages(), 6) << "the duplicate is free";
  EXPECT_EQ(cache.Cached({1, 2, 3, 4}), want);
}

TEST(PrefixTreeTest, EvictsTheLeastRecentlyUsedAndEndsBeforeBeginnings) {
  Cache cache(8);
  const auto left = cache.Leave({1, 2, 3, 4});
  cache.Leave({1, 2, 5, 6});
  cache.Leave({7, 8});
  cache.Cached({1, 2, 3, 4});
  EXPECT_EQ(cache.tree.Evict(1, cache.pool), 1);
  EXPECT_THAT(cache.Cached({1, 2, 5, 6}), ElementsAre(left[0]));
  EXPECT_EQ(cache.tree.Evict(1, cache.pool), 1);
  EXPECT_THAT(cache.Cached({7, 8}), IsEmpty());
  EXPECT_EQ(cache.tree.Evict(1, cache.pool), 1);
  EXPECT_THAT(cache.Cached({1, 2, 3, 4}), ElementsAre(left[0]));
  EXPECT_EQ(cache.tree.Evict(5, cache.pool), 1) << "all that was left";
  EXPECT_EQ(cache.tree.Evict(-3, cache.pool), 0);
  EXPECT_EQ(cache.pool.free_pages(), 8);
}

TEST(PrefixTreeTest, PinsHoldAPageAndAllBeforeIt) {
  Cache cache(8);
  const auto pages = cache.Leave({1, 2, 3, 4, 5, 6});
  Cache::Sequence running = cache.Match({1, 2, 3, 4});
  EXPECT_EQ(cache.tree.evictable_pages(), 1);
  EXPECT_EQ(cache.tree.Evict(3, cache.pool), 1);
  EXPECT_THAT(cache.Cached({1, 2, 3, 4, 5, 6}), ElementsAre(pages[0], pages[1]));
  cache.Retire(running);
  EXPECT_EQ(cache.tree.Evict(3, cache.pool), 2);
}

TEST(PrefixTreeTest, ACollisionOfHashesNeverGivesAWrongPage) {
  Cache cache(8, CollidingHash);
  const auto a = cache.Leave({1, 2, 3, 4});
  const auto b = cache.Leave({5, 6, 3, 4});
  EXPECT_THAT(cache.Cached({9, 9}), IsEmpty());
  EXPECT_EQ(cache.Cached({1, 2, 3, 4}), a);
  EXPECT_EQ(cache.Cached({5, 6, 3, 4}), b);
  EXPECT_EQ(cache.tree.cached_pages(), 4);
}

TEST(PrefixTreeTest, TheHashNamesAllTokensUpToThePage) {
  Cache one(4);
  Cache other(4);
  other.Leave({8, 8});
  Cache::Sequence a;
  Cache::Sequence b;
  one.Append(a, {1, 2});
  other.Append(b, {1, 2});
  EXPECT_EQ(one.tree.hash(a.cursor), other.tree.hash(b.cursor)) << "in every tree the same";
  one.Append(a, {3, 4});
  EXPECT_NE(one.tree.hash(a.cursor), other.tree.hash(b.cursor));
  EXPECT_NE(HashPage({}, Tokens{1, 2}), HashPage({}, Tokens{2, 1}));
  EXPECT_NE(HashPage({}, Tokens{0}), HashPage({}, Tokens{0, 0}));
  EXPECT_NE(HashPage({}, Tokens{0, 0}), HashPage(HashPage({}, Tokens{0}), Tokens{0, 0}));
}

TEST(PrefixTreeDeathTest, APageHasItsSize) {
  Cache cache(4);
  Cache::Sequence sequence;
  EXPECT_DEATH(cache.Append(sequence, {1, 2, 3}), "3 tokens for a page of 2");
}

// What the tree must do, by brute force: prefixes in a map.
class NaiveTree {
 public:
  std::vector<PageId> Match(const Tokens& tokens) {
    std::vector<PageId> pages;
    for (size_t end = kPageSize; end <= tokens.size(); end += kPageSize) {
      const auto found = entries_.find(Prefix(tokens, end));
      if (found == entries_.end()) break;
      pages.push_back(found->second.page);
    }
    return pages;
  }
  bool Publish(const Tokens& prefix, PageId page) {
    return entries_.try_emplace(prefix, Entry{.page = page}).second;
  }
  void Release(const Tokens& prefix) {
    for (size_t end = prefix.size(); end > 0; end -= kPageSize)
      entries_.at(Prefix(prefix, end)).released = ++releases_;
  }
  // `pinned`: the cursors of all that run.
  PageId EvictOne(const std::vector<Tokens>& pinned) {
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
      if (!IsPinned(entry->first, pinned) && !HasChild(entry->first) &&
          (oldest == entries_.end() || entry->second.released < oldest->second.released))
        oldest = entry;
    if (oldest == entries_.end()) return -1;
    const PageId page = oldest->second.page;
    entries_.erase(oldest);
    return page;
  }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t Evictable(const std::vector<Tokens>& pinned) const {
    return std::count_if(entries_.begin(), entries_.end(),
                         [&](const auto& entry) { return !IsPinned(entry.first, pinned); });
  }

 private:
  struct Entry {
    PageId page = 0;
    int64_t released = 0;
  };
  static Tokens Prefix(const Tokens& tokens, size_t end) {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  static bool IsPrefix(const Tokens& prefix, const Tokens& of) {
    return prefix.size() <= of.size() && std::equal(prefix.begin(), prefix.end(), of.begin());
  }
  static bool IsPinned(const Tokens& prefix, const std::vector<Tokens>& pinned) {
    return std::any_of(pinned.begin(), pinned.end(),
                       [&](const Tokens& cursor) { return IsPrefix(prefix, cursor); });
  }
  bool HasChild(const Tokens& prefix) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
      return entry.first.size() > prefix.size() && IsPrefix(prefix, entry.first);
    });
  }

  std::map<Tokens, Entry> entries_;
  int64_t releases_ = 0;
};

// Sequences over few different tokens come, grow and go; pages are evicted when they run out.
class RandomWalk {
 public:
  RandomWalk(uint64_t seed, PrefixTree::HashFunction hash) : random_(seed), cache_(kPages, hash) {}

  void Run() {
    for (int step = 0; step < 1000 && !::testing::Test::HasFailure(); ++step) {
      const auto choice = random_() % 8;
      if (choice < 2 && running_.size() < 5) {
        Arrive();
      } else if (choice < 7 && !running_.empty()) {
        Grow(running_[random_() % running_.size()]);
      } else if (!running_.empty()) {
        Leave(random_() % running_.size());
      }
      EXPECT_EQ(cache_.tree.cached_pages(), naive_.size());
      EXPECT_EQ(cache_.tree.evictable_pages(), naive_.Evictable(Pinned()));
    }
    while (!running_.empty()) Leave(running_.size() - 1);
    while (cache_.tree.cached_pages() > 0 && !::testing::Test::HasFailure()) EvictOne();
    EXPECT_EQ(cache_.pool.free_pages(), kPages);
    EXPECT_GT(hits_, 50);
    EXPECT_GT(duplicates_, 10);
    EXPECT_GT(evictions_, 50);
  }

 private:
  static constexpr int64_t kPages = 24;

  struct Running {
    Cache::Sequence sequence;
    Tokens published;
  };

  Tokens SomePage() {
    Tokens page;
    for (int i = 0; i < kPageSize; ++i) page.push_back(static_cast<int32_t>(random_() % 2));
    return page;
  }

  std::vector<Tokens> Pinned() const {
    std::vector<Tokens> pinned;
    for (const Running& running : running_) pinned.push_back(running.published);
    return pinned;
  }

  void Arrive() {
    Tokens tokens;
    for (auto pages = random_() % 5; pages > 0; --pages)
      for (const int32_t token : SomePage()) tokens.push_back(token);
    if (random_() % 2 == 0) tokens.push_back(1);  // not a whole page
    Running arrived{.sequence = cache_.Match(tokens), .published = {}};
    EXPECT_EQ(arrived.sequence.pages, naive_.Match(tokens));
    const auto matched = arrived.sequence.pages.size();
    hits_ += static_cast<int>(matched);
    arrived.published.assign(tokens.begin(),
                             tokens.begin() + static_cast<std::ptrdiff_t>(matched * kPageSize));
    running_.push_back(std::move(arrived));
  }

  void Grow(Running& running) {
    if (cache_.pool.free_pages() == 0) {
      if (cache_.tree.evictable_pages() == 0) return;
      EvictOne();
    }
    const Tokens page = SomePage();
    for (const int32_t token : page) running.published.push_back(token);
    const bool is_new = cache_.Append(running.sequence, page);
    EXPECT_EQ(is_new, naive_.Publish(running.published, running.sequence.pages.back()));
    if (!is_new) ++duplicates_;
  }

  void Leave(size_t index) {
    naive_.Release(running_[index].published);
    cache_.Retire(running_[index].sequence);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void EvictOne() {
    const int64_t free = cache_.pool.free_pages();
    ASSERT_EQ(cache_.tree.Evict(1, cache_.pool), 1);
    ASSERT_EQ(cache_.pool.free_pages(), free + 1);
    EXPECT_EQ(cache_.pool.users(naive_.EvictOne(Pinned())), 0) << "another page was evicted";
    ++evictions_;
  }

  std::mt19937_64 random_;
  Cache cache_;
  NaiveTree naive_;
  std::vector<Running> running_;
  int hits_ = 0;
  int duplicates_ = 0;
  int evictions_ = 0;
};

TEST(PrefixTreeTest, DoesWhatANaiveOneDoes) {
  for (const auto hash : {&HashPage, &CollidingHash}) {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      SCOPED_TRACE(fmt::format("seed {} {}", seed, hash == &HashPage ? "" : "colliding"));
      RandomWalk(seed, hash).Run();
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace longspan::kv
