#include "kv/page_pool.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::kv {
namespace {

TEST(PagePoolTest, HandsOutEveryPageOnce) {
  PagePool pool(10, 64);
  const auto a = pool.Acquire(4).value();
  const auto b = pool.Acquire(6).value();
  std::set<PageId> all(a.begin(), a.end());
  all.insert(b.begin(), b.end());
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST(PagePoolTest, RefusalTakesNothingAndSaysWhatFits) {
  PagePool pool(3, 64);
  const auto refused = pool.Acquire(4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), base::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("256 tokens"));
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("192 are free"));
  EXPECT_EQ(pool.free_pages(), 3);
}

TEST(PagePoolTest, ASharedPageIsFreeAfterItsLastUser) {
  PagePool pool(1, 64);
  const auto pages = pool.Acquire(1).value();
  pool.Share(pages[0]);
  pool.Release(pages);
  EXPECT_EQ(pool.free_pages(), 0);
  pool.Release(pages);
  EXPECT_EQ(pool.free_pages(), 1);
}

TEST(PagePoolDeathTest, ReleasingTwiceAborts) {
  PagePool pool(1, 64);
  const auto pages = pool.Acquire(1).value();
  pool.Release(pages);
  EXPECT_DEATH(pool.Release(pages), "released twice");
}

TEST(PagePoolTest, PagesForRoundsUp) {
  EXPECT_EQ(PagesFor(0, 64), 0);
  EXPECT_EQ(PagesFor(1, 64), 1);
  EXPECT_EQ(PagesFor(INT64_MAX, 64), int64_t{1} << 57);
  EXPECT_EQ(PagesFor(64, 64), 1);
  EXPECT_EQ(PagesFor(65, 64), 2);
}

}  // namespace
}  // namespace longspan::kv
