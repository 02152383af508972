#include "server/prefill_clock.h"

#include <gtest/gtest.h>

namespace longspan::server {
namespace {

TEST(PrefillClockTest, KnowsNothingBeforeTheSecondReport) {
  PrefillClock clock;
  EXPECT_FALSE(clock.SecondsLeft(1000));
  clock.Add(100, 5.0);
  EXPECT_FALSE(clock.SecondsLeft(1000));
  clock.Add(200, 6.0);
  EXPECT_NEAR(*clock.SecondsLeft(1000), 8.0, 1e-9);
}

TEST(PrefillClockTest, FindsTheGrowthWithTheContext) {
  const auto seconds = [](double n) { return 3 + n / 1000 + 0.02 * n * n / 1e6; };
  PrefillClock clock;
  // From a cached prefix on.
  for (int done = 4096; done <= 65536; done += 4096) clock.Add(done, seconds(done));
  EXPECT_NEAR(*clock.SecondsLeft(262144), seconds(262144) - seconds(65536), 1e-3);
  EXPECT_EQ(*clock.SecondsLeft(65536), 0);
}

TEST(PrefillClockTest, TellsTheTimeOfAChunk) {
  PrefillClock clock;
  clock.Add(512, 1.0);
  EXPECT_FALSE(clock.SecondsBetween(512, 1024));
  clock.Add(1024, 2.0);
  clock.Add(1536, 3.0);
  EXPECT_NEAR(*clock.SecondsBetween(1536, 2560), 2.0, 1e-9);
}

TEST(PrefillClockTest, NeverRunsBackwards) {
  PrefillClock clock;
  // Ever faster: neither part may become negative.
  clock.Add(0, 0);
  clock.Add(1000, 3.0);
  clock.Add(2000, 4.0);
  clock.Add(3000, 4.5);
  EXPECT_GT(*clock.SecondsLeft(6000), 0);
}

}  // namespace
}  // namespace longspan::server
