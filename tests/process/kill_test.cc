// Processes that end before their time: nobody hangs, nobody is left.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A prefill that takes minutes on the slow backend; the file lives in `folder`.
std::vector<std::string> LongPrefill(const TemporaryFolder& folder, int stages, int chunk = 64) {
  const std::vector<int32_t> ids(16000, 300);
  return {"generate",
          "--backend",
          "reference",
          "--ids-file",
          folder.Write("ids.json", nlohmann::json(ids).dump()),
          "--chunked-prefill-size",
          std::to_string(chunk),
          "--threads",
          "1",
          "--no-replay",
          "--pp-size",
          std::to_string(stages)};
}

// Waits until the first `busy` stages compute: they have used more processor time than loading
// takes. Returns all stages.
std::vector<pid_t> WaitUntilBusy(const RunningProgram& program, int stages, int busy) {
  auto pids = program.WaitForStages(static_cast<size_t>(stages));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (int stage = 0; stage < std::min<int>(busy, pids.size()); ++stage)
    while (RunningProgram::ProcessorSeconds(pids[stage]) < 0.3 &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return pids;
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(KillTest, AKilledStageEndsTheCommandWithASentence) {
  const TemporaryFolder folder;
  for (const int stages : {2, 3}) {
    for (int victim = 0; victim < stages; ++victim) {
      // Chunks of a fraction of a second, and of many seconds: those cannot end by themselves.
      const bool endless = stages == 3;
      RunningProgram program(LongPrefill(folder, stages, endless ? 4096 : 64));
      const auto pids = WaitUntilBusy(program, stages, endless ? 1 : stages);
      ASSERT_EQ(pids.size(), static_cast<size_t>(stages));
      kill(pids[victim], SIGKILL);
      const auto killed = std::chrono::steady_clock::now();
      const Outcome outcome = program.Wait();
      fmt::print("stage {} of {} killed: the command ends after {:.2f} s\n", victim, stages,
                 SecondsSince(killed));
      EXPECT_LT(SecondsSince(killed), 5);
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_EQ(outcome.errors,
                fmt::format("longspan: stage {} is gone: process {} was killed by signal 9\n",
                            victim, pids[victim]));
      EXPECT_TRUE(outcome.left.empty());
    }
  }
}

TEST(KillTest, AKilledRankOfAStageEndsTheCommandWithASentence) {
  const TemporaryFolder folder;
  for (int victim = 0; victim < 4; ++victim) {
    std::vector<std::string> arguments = LongPrefill(folder, 2);
    arguments.insert(arguments.end(), {"--tp-size", "2", "--ep-size", victim % 2 == 0 ? "1" : "2"});
    RunningProgram program(arguments);
    const auto pids = WaitUntilBusy(program, 4, 4);
    ASSERT_EQ(pids.size(), 4u);
    // Stopped, it makes the other rank of its stage wait inside a sum or for rows of experts.
    kill(pids[victim], SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(pids[victim], SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const Outcome outcome = program.Wait();
    EXPECT_LT(SecondsSince(killed), 5);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(
        outcome.errors,
        fmt::format("longspan: rank {} (stage {}) is gone: process {} was killed by signal 9\n",
                    victim, victim / 2, pids[victim]));
    EXPECT_TRUE(outcome.left.empty());
  }
}

TEST(KillTest, StagesGoWithTheirLeader) {
  const TemporaryFolder folder;
  for (const int signal : {SIGKILL, SIGTERM, SIGINT}) {
    RunningProgram program(LongPrefill(folder, 2));
    WaitUntilBusy(program, 2, 2);
    kill(program.pid(), signal);
    const auto killed = std::chrono::steady_clock::now();
    // Waits for the stages too: they hold its stderr.
    const Outcome outcome = program.Wait();
    fmt::print("leader gets signal {}: all gone after {:.2f} s\n", signal, SecondsSince(killed));
    EXPECT_LT(SecondsSince(killed), 2);
    EXPECT_EQ(outcome.signal, signal);
    EXPECT_EQ(outcome.errors, "");
    EXPECT_TRUE(outcome.left.empty());
  }
}

TEST(KillTest, AnInterruptOfTheWholeGroupLeavesNothing) {
  const TemporaryFolder folder;
  RunningProgram program(LongPrefill(folder, 2));
  WaitUntilBusy(program, 2, 2);
  kill(-program.pid(), SIGINT);  // what a terminal's Ctrl-C does
  const Outcome outcome = program.Wait();
  EXPECT_EQ(outcome.signal, SIGINT);
  EXPECT_TRUE(outcome.left.empty());
}

TEST(OutputTest, WhatCannotBeWrittenIsAFailure) {
  const TemporaryFolder folder;
  const std::string ids = folder.Write("ids.json", "[1,2,3]");
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "--prompt", "hi", "--max-tokens", "3"},
      {"generate", "--prompt", "hi", "--max-tokens", "3", "--json", "--pp-size", "2"},
      {"score", "--ids-file", ids},
      {"tokenize", "--text", "hi"},
      {"detokenize", "--ids-file", ids},
      {"--version"},
      {"generate", "--help"}};
  for (const auto& command : commands) {
    const Outcome full = RunProgram(command, {.output_to = "/dev/full"});
    EXPECT_EQ(full.exit_code, 1) << command[0];
    EXPECT_THAT(full.errors, HasSubstr("longspan: cannot write to the standard output: "));
    EXPECT_EQ(full.output, "");
    const Outcome closed = RunProgram(command, {.close_output = true});
    EXPECT_EQ(closed.exit_code, 1) << command[0];
    EXPECT_THAT(closed.errors, HasSubstr("longspan: cannot write to the standard output: "));
    EXPECT_TRUE(closed.left.empty());
  }
}

}  // namespace
}  // namespace longspan::testing
