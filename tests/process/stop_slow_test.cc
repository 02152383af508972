// Stages that stand still for 20 seconds, with the program's own times.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/node_run.h"

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
    RunningProgram program(run.Arguments(), run.Options());
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

// The whole node: its program and its stages.
TEST(StopTest, ANodeThatStopsFor20SecondsComesBack) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder};
  const std::string expected = run.ExpectedText();
  std::filesystem::remove(run.output());
  const auto [hosts, leader, other] = StartedNodes(run);
  const auto stages = other->WaitForStages(1);
  kill(-other->pid(), SIGSTOP);
  const size_t before = run.Text().size();
  std::this_thread::sleep_for(std::chrono::seconds(20));
  EXPECT_LT(run.Text().size(), before + 50) << "nothing stopped";
  kill(-other->pid(), SIGCONT);
  // Its old stage finds its epoch over and leaves.
  EXPECT_TRUE(WaitUntil([&, &node = other] {
    const auto now = node->WaitForStages(1);
    return std::find(now.begin(), now.end(), stages[0]) == now.end();
  }));
  const Outcome outcome = leader->Wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("given no sign of life for 5.0 s"));
  EXPECT_EQ(run.Text(), expected);
  EXPECT_EQ(other->Wait().exit_code, 0);
}

TEST(StopTest, NodesEndWhenNode0IsGone) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder};
  const auto [hosts, leader, other] = StartedNodes(run);
  kill(leader->pid(), SIGKILL);
  const auto killed = steady_clock::now();
  const Outcome outcome = other->Wait();
  EXPECT_LT(SecondsSince(killed), 20);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("longspan: node 0 is gone: no connection to 127.0.0.1:"));
  EXPECT_TRUE(outcome.left.empty());
  EXPECT_TRUE(leader->Wait().left.empty());
}

}  // namespace
}  // namespace longspan::testing
