#include "tensor/thread_pool.h"

#include <set>

#include <gtest/gtest.h>

namespace longspan::tensor {
namespace {

TEST(ThreadPoolTest, EveryTaskRunsOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool({.threads = threads});
    ASSERT_EQ(pool.threads(), threads);
    for (int round = 0; round < 200; ++round) {
      const int tasks = round % 17;
      std::vector<std::atomic<int>> count(tasks);
      pool.ParallelFor(tasks, [&](int64_t task, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        count[task].fetch_add(1);
      });
      for (const auto& times : count) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, WritesOfTasksAreSeenAfterTheLoop) {
  ThreadPool pool({.threads = 3});
  std::vector<int64_t> squares(1000);
  pool.ParallelFor(1000, [&](int64_t task, int) { squares[task] = task * task; });
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(squares[i], i * i);
}

TEST(ThreadPoolTest, RanksGetCoresOfTheirOwnOrNone) {
  const int cores = static_cast<int>(AllowedCores().size());
  std::set<int> seen;
  for (int rank = 0; rank < cores; ++rank) {
    const auto own = CoresOfRank(rank, cores, 1);
    ASSERT_EQ(own.size(), 1u);
    EXPECT_TRUE(seen.insert(own[0]).second);
  }
  EXPECT_TRUE(CoresOfRank(0, cores + 1, 1).empty());
}

}  // namespace
}  // namespace longspan::tensor
