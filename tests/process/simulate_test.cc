// `longspan simulate`, `longspan plan` and emulated ranks, as a user calls them.
#include <algorithm>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/eight_bit_model.h"
#include "tests/process/emulated_run.h"
#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kModels = std::string(LONGSPAN_SOURCE_DIR) + "/bench/models/";

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json RunJson(const std::vector<std::string>& arguments) {
  const Outcome outcome = RunProgram(With(arguments, {"--json"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  return json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Simulate(const std::string& model) {
  return {"simulate", "--model-path", model, "--hardware", "h20", "--nnodes", "4"};
}

TEST(SimulateTest, SaysWhatAPromptTakes) {
  const TemporaryFolder folder;
  const json out =
      RunJson(With(Simulate(WriteEightBitModel(folder)),
                   {"--pp-size", "8", "--tp-size", "4", "--prompt-len", "32768,131072"}));
  ASSERT_EQ(out["rows"].size(), 2u);
  for (const json& row : out["rows"]) {
    int64_t tokens = 0;
    for (const int64_t chunk : row["chunks"]) tokens += chunk;
    EXPECT_EQ(tokens, row["prompt_len"]);
    EXPECT_GT(row["ttft_s"], 0);
    EXPECT_GT(row["bubble_share"], 0);
    EXPECT_LT(row["bubble_share"], 1);
    EXPECT_GT(row["kv_bytes_per_gpu"], 0);
    EXPECT_NEAR(row["weight_bytes_per_gpu"].get<double>(), 235e9 / 32, 1.5e9);
    EXPECT_GT(row["comm_bytes"]["tp"], row["comm_bytes"]["pp"]);
    EXPECT_EQ(row["comm_bytes"]["cp"], 0);
  }
  EXPECT_LT(out["rows"][0]["ttft_s"], out["rows"][1]["ttft_s"]);
}

TEST(SimulateTest, TakesAWorkloadAndDrawsIt) {
  const TemporaryFolder folder;
  const std::string workload =
      folder.Write("load.json", R"({"requests": [{"prompt_tokens": 20000, "output_tokens": 5},
                                    {"at_s": 0.5, "prompt_tokens": 1000}]})");
  const std::string svg = (folder.path() / "gantt.svg").string();
  const json out = RunJson({"simulate", "--model-path", kModels + "qwen3-30b-a3b", "--hardware",
                            "h200", "--pp-size", "4", "--workload", workload, "--svg", svg});
  EXPECT_EQ(out["rows"][0]["prompts"], 2);
  EXPECT_THAT(ReadFile(svg), StartsWith("<svg"));
  EXPECT_THAT(ReadFile(svg), HasSubstr("rank 3"));
}

TEST(SimulateTest, RanksMayDivideTheCache) {
  const TemporaryFolder folder;
  const auto arguments = With(Simulate(WriteEightBitModel(folder)),
                              {"--cp-size", "4", "--pp-size", "4", "--prompt-len", "32768"});
  const json whole = RunJson(arguments)["rows"][0];
  const json divided = RunJson(With(arguments, {"--kv-placement", "sharded"}))["rows"][0];
  EXPECT_NEAR(divided["kv_bytes_per_gpu"].get<double>(),
              whole["kv_bytes_per_gpu"].get<double>() / 4, 1e6);
  EXPECT_GT(divided["kv_capacity_tokens"], 3 * whole["kv_capacity_tokens"].get<int64_t>());
  EXPECT_GT(divided["comm_bytes"]["cp"], whole["comm_bytes"]["cp"]);
  EXPECT_GT(divided["ttft_s"], whole["ttft_s"]);
}

TEST(SimulateTest, WhatCutsBlocksIsRefusedWithTheWeight) {
  const TemporaryFolder folder;
  const auto arguments =
      With(Simulate(WriteEightBitModel(folder)), {"--tp-size", "8", "--prompt-len", "4096"});
  const Outcome refused = RunProgram(arguments);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("mlp.experts.*.gate_proj.weight"));
  EXPECT_EQ(RunProgram(With(arguments, {"--ignore-block-divisibility"})).exit_code, 0);
  const Outcome served = RunProgram({"serve", "--model-path", folder.path().string(),
                                     "--load-format", "dummy", "--tp-size", "8"});
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(served.errors, StartsWith("longspan: --tp-size 8 leaves 192 of the 1536 rows of "
                                        "mlp.experts.*.gate_proj.weight"));
}

TEST(SimulateTest, WrongUsageIsOneSentence) {
  const TemporaryFolder folder;
  const std::string model = WriteEightBitModel(folder);
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string message;
  } cases[] = {
      {{"simulate", "--model-path", model, "--prompt-len", "9"}, 2, "--hardware is missing"},
      {Simulate(model), 2, "either --prompt-len or --workload"},
      {{"simulate", "--model-path", model, "--hardware", "h2", "--prompt-len", "9"},
       1,
       "take one of b200, h100, h20, h200"},
      {With(Simulate(model), {"--prompt-len", "9", "--pp-size", "64"}), 2, "--nnodes 4"},
      {With(Simulate(model), {"--prompt-len", "9", "--context-length", "500000"}), 2,
       "above the model's 262144"},
      {With(Simulate(model), {"--prompt-len", "9", "--trace-out", "trace.json"}), 2, "--svg"},
      {{"plan", "--model-path", model, "--hardware", "h20", "--gpus", "1"}, 1, "do not fit"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = RunProgram(c.arguments);
    EXPECT_EQ(outcome.exit_code, c.exit_code) << c.message;
    EXPECT_EQ(outcome.output, "");
    EXPECT_THAT(outcome.errors, HasSubstr(c.message));
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  }
}

TEST(PlanTest, GivesTheBestLayoutFirstWithItsCommand) {
  const TemporaryFolder folder;
  const std::string svg = (folder.path() / "plan.svg").string();
  const std::vector<std::string> arguments = {"plan",
                                              "--model-path",
                                              WriteEightBitModel(folder),
                                              "--hardware",
                                              "h20",
                                              "--gpus",
                                              "16",
                                              "--target-ttft",
                                              "30",
                                              "--prompt-len",
                                              "131072",
                                              "--explain",
                                              "--svg",
                                              svg};
  const json out = RunJson(arguments);
  ASSERT_GT(out["layouts"].size(), 1u);
  double before = 0;
  for (const json& layout : out["layouts"]) {
    EXPECT_GE(layout["ttft_s"], before);
    before = layout["ttft_s"];
    EXPECT_EQ(layout["pp"].get<int>() * layout["cp"].get<int>() * layout["tp"].get<int>(), 16);
    EXPECT_THAT(layout["command"].get<std::string>(), StartsWith("longspan serve --model-path"));
    EXPECT_GT(layout["memory"]["kv_capacity_tokens"], 131072);
  }
  EXPECT_THAT(out["explanation"].get<std::string>(), HasSubstr("rank 0 loop 0: layers 0 to"));
  EXPECT_THAT(out["explanation"].get<std::string>(), HasSubstr("GB for the prompt"));
  EXPECT_THAT(ReadFile(svg), HasSubstr("Time to first token, by length"));
}

TEST(PlanTest, SaysWhichWeightRefusesWiderTensorParallelism) {
  const TemporaryFolder folder;
  const std::string model = WriteEightBitLatentModel(folder);
  const Outcome planned =
      RunProgram({"plan", "--model-path", model, "--hardware", "h20", "--gpus", "32"});
  EXPECT_EQ(planned.exit_code, 0) << planned.errors;
  const std::string reason =
      "--tp-size 32 leaves 64 of the 2048 rows of mlp.experts.*.gate_proj.weight";
  EXPECT_THAT(planned.output, HasSubstr(reason));
  const Outcome served =
      RunProgram({"serve", "--model-path", model, "--load-format", "dummy", "--tp-size", "32"});
  EXPECT_EQ(served.exit_code, 1);
  EXPECT_THAT(served.errors, HasSubstr(reason));
}

// Thirty-two ranks that wait, on the cores that there are.
TEST(EmulatedTest, RunsTheWholeRuntimeInModelledTime) {
  const TemporaryFolder folder;
  const std::string model = WriteEightBitModel(folder);
  std::vector<int32_t> ids(8192);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const json simulated =
      RunJson(With(Simulate(model), {"--pp-size", "8", "--tp-size", "4", "--chunk-policy", "fixed",
                                     "--chunked-prefill-size", "2048", "--prompt-len", "8192"}));
  const json out = RunJson(EmulatedRun(
      model, {"--chunk-policy", "fixed", "--chunked-prefill-size", "2048", "--ids-file",
              folder.Write("ids.json", json(ids).dump()), "--max-tokens", "2", "--ignore-eos"}));
  const json& output = out["outputs"][0];
  EXPECT_EQ(output["completion_tokens"], 2);
  // Waits take no less than the modelled time; how much more, a busy machine decides.
  EXPECT_GE(output["ttft_s"].get<double>(), 0.98 * simulated["rows"][0]["ttft_s"].get<double>());
  EXPECT_EQ(out["pipeline"]["chunks"][0]["stage_ms"].size(), 32u);
}

// Ranks on every axis, in loops, at a tenth of the time: what they wait for is the simulated time
// by the scale. From above it is held to half of the time without the scale.
TEST(EmulatedTest, TimeScaleHoldsForContextAndExpertRanksAndLoops) {
  const TemporaryFolder folder;
  const std::string model = WriteEightBitModel(folder);
  const std::vector<std::string> layout = {"--pp-size",
                                           "2",
                                           "--cp-size",
                                           "2",
                                           "--tp-size",
                                           "2",
                                           "--ep-size",
                                           "4",
                                           "--virtual-stages",
                                           "2",
                                           "--cp-strategy",
                                           "zigzag",
                                           "--chunk-policy",
                                           "fixed",
                                           "--chunked-prefill-size",
                                           "4096"};
  std::vector<int32_t> ids(32768);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const json simulated = RunJson(With(With(Simulate(model), layout), {"--prompt-len", "32768"}));
  const double seconds = simulated["rows"][0]["ttft_s"];
  ASSERT_GT(seconds, 2);
  const json out = RunJson(
      With(With({"generate", "--model-path", model, "--backend", "emulated", "--hardware", "h20"},
                layout),
           {"--time-scale", "0.1", "--ids-file", folder.Write("ids.json", json(ids).dump()),
            "--max-tokens", "1", "--ignore-eos"}));
  const double measured = out["outputs"][0]["ttft_s"];
  EXPECT_GE(measured, 0.95 * 0.1 * seconds);
  EXPECT_LE(measured, 0.5 * seconds);
}

}  // namespace
}  // namespace longspan::testing
