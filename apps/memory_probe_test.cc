#include "apps/memory_probe.h"

#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

TEST(MemoryProbeTest, ReadsAtTheSpeedOfAMemory) {
  tensor::ThreadPool pool({.threads = 1});
  const auto rate = MeasureReadRate(pool);
  ASSERT_TRUE(rate.ok()) << rate.status().message();
  // Slower than a disk, or faster than any core's loads, would be a wrong count or a loop that the
  // compiler dropped.
  EXPECT_GT(*rate, 1e8);
  EXPECT_LT(*rate, 1e12);
}

}  // namespace
}  // namespace longspan::apps
