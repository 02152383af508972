// Several hosts, as processes of this one: the same command on each.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/node_run.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;

// The embedded model with other weights in files of the same sizes.
std::string OtherWeights(const TemporaryFolder& folder) {
  const auto path = folder.path() / "other";
  std::filesystem::copy(std::filesystem::path(LONGSPAN_SOURCE_DIR) / "models/tiny-qwen3-moe", path,
                        std::filesystem::copy_options::recursive);
  const auto file = path / "model.safetensors";
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(file));
  std::fstream weights(file, std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(size / 2);
  weights << std::string(static_cast<size_t>(size / 4), '\1');
  return path.string();
}

void ExpectEnded(RunningProgram& program) {
  const Outcome outcome = program.Wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "");
  EXPECT_TRUE(outcome.left.empty());
}

TEST(NodesTest, GiveTheOutputOfOneHost) {
  const TemporaryFolder folder;
  for (const auto& [nodes, stages, loops, lanes, context] :
       {std::tuple(2, 2, 1, 1, 1), std::tuple(2, 3, 1, 1, 1), std::tuple(2, 4, 1, 1, 1),
        std::tuple(3, 4, 1, 1, 1), std::tuple(2, 2, 2, 1, 1), std::tuple(3, 3, 1, 2, 1),
        std::tuple(2, 2, 1, 1, 2)}) {
    const SlowRun run = {
        .folder = folder,
        .stages = stages,
        .lanes = lanes,
        .prompt = 200,
        .tokens = 50,
        .more = {"--virtual-stages", std::to_string(loops), "--cp-size", std::to_string(context)}};
    const std::string expected = run.ExpectedText();
    ASSERT_GT(expected.size(), 20u);
    std::filesystem::remove(run.output());
    const NodeRun hosts = {.run = run, .nodes = nodes};
    std::vector<std::unique_ptr<RunningProgram>> programs;
    for (int node = nodes - 1; node >= 0; --node) programs.push_back(hosts.Start(node));
    for (const auto& program : programs) ExpectEnded(*program);
    EXPECT_EQ(run.Text(), expected)
        << nodes << " nodes, " << stages << " x " << context << " x " << lanes << " ranks";
  }
}

TEST(NodesTest, ADifferentNodeIsRefusedAndARightOneTaken) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .prompt = 20, .tokens = 5};
  const NodeRun hosts = {.run = run};
  const auto leader = hosts.Start(0);
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Outcome outcome = hosts.Start(1, more)->Wait();
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(outcome.left.empty());
    return outcome.errors;
  };
  EXPECT_THAT(refusal({"--page-size", "32"}),
              HasSubstr("longspan: --page-size is '64' at the peer and '32' here"));
  EXPECT_THAT(refusal({"--deterministic"}), HasSubstr("--deterministic is 'off' at the peer"));
  EXPECT_THAT(refusal({"--tp-size", "2"}), HasSubstr("--tp-size is '1' at the peer and '2' here"));
  EXPECT_THAT(refusal({"--cp-strategy", "zigzag"}), HasSubstr("--cp-strategy is 'interleave'"));
  EXPECT_THAT(refusal({"--model-path", OtherWeights(folder)}),
              HasSubstr("longspan: the model is '"));
  const auto other = std::filesystem::path(LONGSPAN_SOURCE_DIR) / "tests/data/models/rand-qwen3";
  EXPECT_THAT(refusal({"--model-path", other.string()}), HasSubstr(" is '"));
  const auto right = hosts.Start(1);
  ExpectEnded(*right);
  const Outcome outcome = leader->Wait();
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("a node that wants to join is refused: --page-size is '32' "
                                        "at the peer and '64' here"));
}

TEST(NodesTest, AnotherElementTypeIsRefused) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .backend = "cpu", .prompt = 20, .tokens = 5};
  const NodeRun hosts = {.run = run};
  const auto leader = hosts.Start(0);
  EXPECT_THAT(hosts.Start(1, {"--dtype", "f32"})->Wait().errors,
              HasSubstr("longspan: --dtype is 'bf16' at the peer and 'f32' here"));
  ExpectEnded(*hosts.Start(1));
  EXPECT_EQ(leader->Wait().exit_code, 0);
}

TEST(NodesTest, AKilledStageOfAnotherNodeIsReplaced) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder};
  const std::string expected = run.ExpectedText();
  for (const int signal : {SIGKILL, SIGSTOP}) {
    std::filesystem::remove(run.output());
    const auto [hosts, leader, other] = StartedNodes(run, {"--peer-timeout", "2"});
    kill(other->WaitForStages(1)[0], signal);
    const Outcome outcome = leader->Wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("the stages are started again"));
    EXPECT_EQ(run.Text(), expected);
    ExpectEnded(*other);
    EXPECT_TRUE(outcome.left.empty());
  }
}

// The first of them passes the plans on to the other.
TEST(NodesTest, AKilledStageOfTwoOnAnotherNodeIsReplaced) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder, .stages = 4};
  const std::string expected = run.ExpectedText();
  for (const int victim : {0, 1}) {
    std::filesystem::remove(run.output());
    const auto [hosts, leader, other] = StartedNodes(run);
    kill(other->WaitForStages(2)[victim], SIGKILL);
    const Outcome outcome = leader->Wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_EQ(run.Text(), expected);
    ExpectEnded(*other);
    EXPECT_TRUE(outcome.left.empty());
  }
}

TEST(NodesTest, AKilledNodeIsWaitedFor) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder};
  const std::string expected = run.ExpectedText();
  std::filesystem::remove(run.output());
  const auto [hosts, leader, lost] = StartedNodes(run);
  kill(lost->pid(), SIGKILL);
  EXPECT_TRUE(lost->Wait().left.empty());
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto back = hosts.Start(1);
  const Outcome outcome = leader->Wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(run.Text(), expected);
  ExpectEnded(*back);
  EXPECT_TRUE(outcome.left.empty());
}

TEST(NodesTest, WithoutReplayALostNodeEndsTheCommand) {
  const TemporaryFolder folder;
  const SlowRun run = {.folder = folder};
  const auto [hosts, leader, lost] = StartedNodes(run, {"--no-replay"});
  kill(lost->pid(), SIGKILL);
  const Outcome outcome = leader->Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(
      outcome.errors,
      HasSubstr(
          "longspan: stage 1 is lost: its process on node 1 or the connection to it is gone\n"));
  EXPECT_TRUE(outcome.left.empty());
  EXPECT_TRUE(lost->Wait().left.empty());
}

}  // namespace
}  // namespace longspan::testing
