// Stages that are killed or stop: noticed in time, replaced, and the text is that of an undisturbed
// run.
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/slow_run.h"

namespace longspan::testing {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

enum class Phase { kPrefill, kDecode };

// Waits for the phase; the stages.
std::vector<pid_t> WaitFor(Phase phase, const RunningProgram& program, const SlowRun& run) {
  auto pids = program.WaitForStages(static_cast<size_t>(run.stages) * run.lanes);
  EXPECT_TRUE(WaitUntil([&] {
    if (phase == Phase::kDecode) return run.Text().size() > 20;
    return RunningProgram::ProcessorSeconds(pids.back()) > 0.25;
  }));
  if (phase == Phase::kPrefill) {
    EXPECT_EQ(run.Text(), "") << "too late";
  }
  return pids;
}

// New stages in place of these.
bool Replaced(const RunningProgram& program, const std::vector<pid_t>& old) {
  const auto now = program.WaitForStages(old.size());
  return now.size() == old.size() && std::none_of(now.begin(), now.end(), [&](pid_t pid) {
           return std::find(old.begin(), old.end(), pid) != old.end();
         });
}

TEST(ReplayTest, AKilledStageIsReplaced) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder};
  const std::string expected = run.ExpectedText();
  ASSERT_GT(expected.size(), 100u);
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    for (int victim = 0; victim < run.stages; ++victim) {
      std::filesystem::remove(run.output());
      RunningProgram program(run.Arguments(), run.Options());
      const auto pids = WaitFor(phase, program, run);
      kill(pids[victim], SIGKILL);
      const auto killed = steady_clock::now();
      EXPECT_TRUE(WaitUntil([&] { return Replaced(program, pids); }));
      fmt::print("stage {} killed: replaced after {:.2f} s\n", victim, SecondsSince(killed));
      const Outcome outcome = program.Wait();
      EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
      EXPECT_EQ(run.Text(), expected);
      EXPECT_THAT(outcome.errors, HasSubstr(fmt::format("process {} was killed by signal 9; the "
                                                        "stages are started again",
                                                        pids[victim])));
      EXPECT_TRUE(outcome.left.empty());
    }
  }
}

// Kills one of the ranks and waits for the end.
void ExpectReplaced(RunningProgram& program, const SlowRun& run, const std::vector<pid_t>& pids,
                    const std::string& expected) {
  kill(pids[1], SIGKILL);
  const auto killed = steady_clock::now();
  EXPECT_TRUE(WaitUntil([&] { return Replaced(program, pids); }));
  EXPECT_LT(SecondsSince(killed), 6);
  const Outcome outcome = program.Wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(run.Text(), expected);
  EXPECT_TRUE(outcome.left.empty());
}

// While the other rank of its stage waits for it, in the middle of a layer.
TEST(ReplayTest, ARankThatIsKilledInsideALayerIsReplaced) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .lanes = 2};
  const std::string expected = run.ExpectedText();
  std::filesystem::remove(run.output());
  RunningProgram program(run.Arguments(), run.Options());
  const auto pids = WaitFor(Phase::kDecode, program, run);
  kill(pids[1], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ExpectReplaced(program, run, pids, expected);
}

// Alone, and with experts and the cache divided as well. Stopped first, it makes the other rank
// wait for it.
TEST(ReplayTest, AContextRankThatIsKilledIsReplaced) {
  const TemporaryFolder folder;
  const std::string expected = SlowRun{.folder = folder}.ExpectedText();
  const std::vector<std::string> divided = {"--cp-size",      "2",      "--ep-size", "2",
                                            "--kv-placement", "sharded"};
  for (const auto& layout : {std::vector<std::string>{"--cp-size", "2"}, divided}) {
    const SlowRun run = {.folder = folder, .stages = 1, .more = layout};
    std::filesystem::remove(run.output());
    RunningProgram program(run.Arguments(), run.Options());
    const auto pids = program.WaitForStages(2);
    ASSERT_EQ(pids.size(), 2u);
    ASSERT_TRUE(WaitUntil([&] { return RunningProgram::ProcessorSeconds(pids[0]) > 0.25; }));
    kill(pids[1], SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ExpectReplaced(program, run, pids, expected);
  }
}

TEST(ReplayTest, ALoopedStageThatIsKilledIsReplaced) {
  const TemporaryFolder folder;
  const std::string expected = SlowRun{.folder = folder}.ExpectedText();
  const SlowRun run = {.folder = folder, .more = {"--virtual-stages", "2"}};
  RunningProgram program(run.Arguments(), run.Options());
  const auto pids = WaitFor(Phase::kPrefill, program, run);
  ExpectReplaced(program, run, pids, expected);
}

// The leader keeps nothing of the stages that it has lost.
TEST(ReplayTest, ManyLossesLeaveNothing) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .tokens = 600};
  RunningProgram program(run.Arguments(), run.Options());
  const auto descriptors = [&] {
    return std::distance(
        std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", program.pid())), {});
  };
  auto pids = WaitFor(Phase::kDecode, program, run);
  const auto before = descriptors();
  for (int loss = 0; loss < 3; ++loss) {
    const size_t printed = run.Text().size();
    kill(pids[static_cast<size_t>(loss) % 2], SIGKILL);
    EXPECT_TRUE(WaitUntil([&] { return Replaced(program, pids); }));
    EXPECT_TRUE(WaitUntil([&] { return run.Text().size() > printed; }));
    pids = program.WaitForStages(2);
    // One that is open for a moment only may be among those before.
    EXPECT_TRUE(WaitUntil([&] { return descriptors() <= before; })) << descriptors();
    EXPECT_EQ(pids.size(), 2u);
  }
  const Outcome outcome = program.Wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.left.empty());
}

TEST(ReplayTest, StagesThatAlwaysDieEndTheCommandWithASentence) {
  const TemporaryFolder folder;
  // One chunk, which never ends: no progress.
  const SlowRun run = {.folder = folder, .prompt = 16000, .chunk = 16000};
  RunningProgram program(run.Arguments());
  std::vector<pid_t> pids = {-1, -1};
  for (int loss = 0; loss < 4; ++loss) {
    EXPECT_TRUE(WaitUntil([&] { return Replaced(program, pids); }));
    pids = program.WaitForStages(2);
    EXPECT_TRUE(WaitUntil([&] { return RunningProgram::ProcessorSeconds(pids[0]) > 0.2; }));
    kill(pids[1], SIGKILL);
  }
  const Outcome outcome = program.Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.errors,
              HasSubstr(fmt::format("\nlongspan: the stages were lost again after 3 restarts "
                                    "without progress: stage 1 is gone: process {} was killed by "
                                    "signal 9\n",
                                    pids[1])));
  EXPECT_TRUE(outcome.left.empty());
}

TEST(StallTest, AStoppedStageIsLostWithinThePeerTimeout) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .more = {"--no-replay", "--peer-timeout", "1"}};
  for (int victim = 0; victim < run.stages; ++victim) {
    std::filesystem::remove(run.output());
    RunningProgram program(run.Arguments(), run.Options());
    const auto pids = WaitFor(Phase::kDecode, program, run);
    kill(pids[victim], SIGSTOP);
    const auto stopped = steady_clock::now();
    const Outcome outcome = program.Wait();
    EXPECT_LT(SecondsSince(stopped), 2.5);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.errors,
              fmt::format("longspan: stage {} is lost: it has given no sign of life for 1.0 s "
                          "(--peer-timeout)\n",
                          victim));
    EXPECT_TRUE(outcome.left.empty());
  }
}

TEST(StallTest, AStoppedRankOfAStageIsLostWithinThePeerTimeout) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder,
                       .stages = 1,
                       .more = {"--tp-size", "2", "--no-replay", "--peer-timeout", "1"}};
  for (int victim = 0; victim < 2; ++victim) {
    std::filesystem::remove(run.output());
    RunningProgram program(run.Arguments(), run.Options());
    const auto pids = program.WaitForStages(2);
    ASSERT_EQ(pids.size(), 2u);
    ASSERT_TRUE(WaitUntil([&] { return run.Text().size() > 20; }));
    kill(pids[victim], SIGSTOP);
    const auto stopped = steady_clock::now();
    const Outcome outcome = program.Wait();
    EXPECT_LT(SecondsSince(stopped), 2.5);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.errors,
              fmt::format("longspan: rank {} (stage 0) is lost: it has given no sign of life for "
                          "1.0 s (--peer-timeout)\n",
                          victim));
    EXPECT_TRUE(outcome.left.empty());
  }
}

TEST(StallTest, APlanThatComputesTooLongIsAStall) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder,
                       .prompt = 16000,
                       .chunk = 16000,
                       .more = {"--no-replay", "--watchdog-timeout", "1"}};
  const Outcome outcome = RunProgram(run.Arguments());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.errors,
            "longspan: stage 0 is stalled: plan 1 has been computing for 1.0 s "
            "(--watchdog-timeout)\n");
  EXPECT_TRUE(outcome.left.empty());
}

// As by Ctrl-Z and fg: nobody is to blame for the time in between.
TEST(StallTest, AProgramThatIsStoppedAsAWholeGoesOn) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .more = {"--peer-timeout", "1"}};
  const std::string expected = run.ExpectedText();
  RunningProgram program(run.Arguments(), run.Options());
  WaitFor(Phase::kDecode, program, run);
  kill(-program.pid(), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  kill(-program.pid(), SIGCONT);
  const Outcome outcome = program.Wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(run.Text(), expected);
  EXPECT_THAT(outcome.errors, ::testing::Not(HasSubstr("started again")));
}

}  // namespace
}  // namespace longspan::testing
