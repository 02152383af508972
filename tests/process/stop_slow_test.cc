// Stages that stand still for 20 seconds, with the program's own times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/slow_run.h"

namespace longspan::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST(StopTest, AStageThatStopsFor20SecondsIsReplacedWithin6) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .tokens = 600};
  const std::string expected = run.ExpectedText();
  for (int victim = 0; victim < run.stages; ++victim) {
    std::filesystem::remove(run.output());
    RunningProgram program(run.Arguments(), {.output_to = run.output()});
    const auto pids = program.WaitForStages(static_cast<size_t>(run.stages));
    EXPECT_TRUE(WaitUntil([&] { return run.Text().size() > 20; }));
    kill(pids[victim], SIGSTOP);
    const auto stopped = steady_clock::now();
    // Gone, not only stopped.
    EXPECT_TRUE(WaitUntil([&] { return kill(pids[victim], 0) != 0; }));
    fmt::print("stage {} stopped: given up after {:.2f} s\n", victim, SecondsSince(stopped));
    EXPECT_LT(SecondsSince(stopped), 6);
    const Outcome outcome = program.Wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_EQ(run.Text(), expected);
    EXPECT_THAT(outcome.errors, HasSubstr("given no sign of life for 5.0 s"));
    EXPECT_TRUE(outcome.left.empty());
  }
}

}  // namespace
}  // namespace longspan::testing
