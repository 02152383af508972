// `longspan generate`, as a user calls it.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

json GoldenCase(const std::string& name) {
  std::ifstream file(LONGSPAN_SOURCE_DIR "/tests/data/golden/tiny-qwen3-moe.json");
  for (const json& golden : json::parse(file))
    if (golden["name"] == name) return golden;
  ADD_FAILURE() << "no golden case " << name;
  return {};
}

// Runs it with --json; a failure to run fails the test.
json GenerateJson(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.insert(arguments.begin(), {"generate", "--json"});
  const Outcome outcome = RunProgram(arguments, options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  EXPECT_TRUE(outcome.left.empty());
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << "one object";
  json parsed = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(parsed.is_object()) << outcome.output;
  return parsed;
}

std::vector<std::string> Keys(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

std::string Generate(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.insert(arguments.begin(), "generate");
  const Outcome outcome = RunProgram(arguments, options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  return outcome.output;
}

TEST(GenerateTest, AnswersTheNeedlePromptsInAnyNumberOfStages) {
  const TemporaryFolder folder;
  for (const char* name : {"needle300", "needle1000"}) {
    const json golden = GoldenCase(name);
    const std::string file = folder.Write("ids.json", golden["ids"].dump());
    for (const int stages : {1, 2, 4}) {
      const json result = GenerateJson({"--ids-file", file, "--max-tokens", "32", "--pp-size",
                                        std::to_string(stages), "--chunked-prefill-size", "128"});
      const json& output = result["outputs"][0];
      EXPECT_EQ(output["ids"], golden["greedy"]) << name << ' ' << stages;
      EXPECT_EQ(output["text"], golden["greedy_text"]) << name << ' ' << stages;
      EXPECT_EQ(output["finish_reason"], "stop");
      EXPECT_EQ(result["pipeline"]["stages"], stages);
    }
  }
}

// Also more ranks than KV heads, and stages of several ranks.
TEST(GenerateTest, RanksThatDivideAStageAnswerAsOne) {
  const TemporaryFolder folder;
  const json golden = GoldenCase("needle300");
  const std::string file = folder.Write("ids.json", golden["ids"].dump());
  const auto expect_answer = [&](std::vector<std::string> layout) {
    std::vector<std::string> arguments = {
        "--ids-file", file, "--max-tokens", "32", "--chunked-prefill-size", "128"};
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    const json result = GenerateJson(arguments);
    EXPECT_EQ(result["outputs"][0]["ids"], golden["greedy"]) << fmt::format("{}", layout);
    EXPECT_EQ(result["outputs"][0]["text"], golden["greedy_text"]) << fmt::format("{}", layout);
  };
  expect_answer({"--tp-size", "2"});
  expect_answer({"--tp-size", "4"});
  expect_answer({"--pp-size", "2", "--tp-size", "2"});
  expect_answer({"--cp-size", "2"});
  expect_answer({"--cp-size", "3", "--cp-strategy", "zigzag"});
  expect_answer({"--pp-size", "2", "--cp-size", "2", "--tp-size", "2"});
  expect_answer({"--cp-size", "2", "--kv-placement", "sharded"});
}

TEST(GenerateTest, SaysThatOneRankHasNoCacheToDivide) {
  const Outcome outcome =
      RunProgram({"generate", "--prompt", "hi", "--max-tokens", "2", "--kv-placement", "sharded"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("--kv-placement sharded changes nothing"));
}

TEST(GenerateTest, JsonHasTheKeysThatOthersRead) {
  const TemporaryFolder folder;
  const json golden = GoldenCase("needle300");
  const auto tokens = static_cast<int64_t>(golden["ids"].size());
  const std::string file = folder.Write("ids.json", golden["ids"].dump());
  const json result = GenerateJson(
      {"--ids-file", file, "--max-tokens", "4", "--pp-size", "2", "--chunked-prefill-size", "100"});
  EXPECT_THAT(Keys(result), ::testing::IsSupersetOf({"outputs", "pipeline"}));
  const json& output = result["outputs"][0];
  EXPECT_THAT(Keys(output),
              ::testing::IsSupersetOf({"text", "ids", "finish_reason", "prompt_tokens",
                                       "cached_tokens", "completion_tokens", "ttft_s",
                                       "prefill_tokens_per_s", "decode_tokens_per_s"}));
  EXPECT_EQ(output["finish_reason"], "length");
  EXPECT_EQ(output["prompt_tokens"], tokens);
  EXPECT_EQ(output["cached_tokens"], 0);
  EXPECT_EQ(output["completion_tokens"], 4);
  EXPECT_GT(output["ttft_s"], 0.0);
  EXPECT_GT(output["prefill_tokens_per_s"], 0.0);
  EXPECT_GT(output["decode_tokens_per_s"], 0.0);

  const json& pipeline = result["pipeline"];
  EXPECT_THAT(Keys(pipeline),
              ::testing::IsSupersetOf({"stages", "chunks", "bubble_share", "cpu_share"}));
  EXPECT_THAT(pipeline["bubble_share"].get<double>(), AllOf(Ge(0), Le(1)));
  EXPECT_GT(pipeline["cpu_share"], 0.0);
  int64_t expected_begin = 0;
  for (const json& chunk : pipeline["chunks"]) {
    EXPECT_THAT(Keys(chunk), ::testing::IsSupersetOf(
                                 {"seq", "begin", "end", "stage_ms", "wait_ms", "transfer_ms"}));
    EXPECT_EQ(chunk["begin"], expected_begin);
    EXPECT_EQ(chunk["stage_ms"].size(), 2u);
    expected_begin = chunk["end"];
  }
  EXPECT_EQ(expected_begin, tokens);
}

TEST(GenerateTest, TakesThePromptFromEverywhere) {
  const TemporaryFolder folder;
  const std::string text = "To be, or not to be";
  const std::string direct = Generate({"--prompt", text, "--max-tokens", "8"});
  EXPECT_FALSE(direct.empty());
  EXPECT_EQ(direct.back(), '\n');
  EXPECT_EQ(Generate({"--prompt-file", folder.Write("prompt.txt", text), "--max-tokens", "8"}),
            direct);
  EXPECT_EQ(Generate({"--prompt-file", "-", "--max-tokens", "8"}, {.input = text}), direct);
  // The same text is what the JSON has.
  EXPECT_EQ(GenerateJson({"--prompt", text, "--max-tokens", "8"})["outputs"][0]["text"],
            direct.substr(0, direct.size() - 1));
  const std::string chat =
      folder.Write("chat.json", R"({"messages":[{"role":"user","content":"Who is there?"}]})");
  const json reply = GenerateJson({"--chat", chat, "--max-tokens", "4"});
  EXPECT_GT(reply["outputs"][0]["prompt_tokens"], 4);
  EXPECT_EQ(reply["outputs"][0]["completion_tokens"], 4);
}

TEST(GenerateTest, SeveralPromptsTogetherAndOneAfterAnother) {
  const TemporaryFolder folder;
  json prompts = json::array();
  json answers = json::array();
  for (const char* name : {"text0", "needle300", "text1", "text2"}) {
    const json golden = GoldenCase(name);
    prompts.push_back(golden["ids"]);
    answers.push_back(golden["greedy"]);
  }
  const std::string file = folder.Write("ids.json", prompts.dump());
  const std::vector<std::string> flags = {"--ids-file", file,  "--max-tokens", "32",
                                          "--dtype",    "f32", "--pp-size",    "2"};
  auto sequential = flags;
  sequential.emplace_back("--sequential");
  for (const auto& arguments : {flags, sequential}) {
    const json result = GenerateJson(arguments);
    ASSERT_EQ(result["outputs"].size(), prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(result["outputs"][i]["ids"], answers[i]) << i;
      EXPECT_EQ(result["outputs"][i]["prompt_tokens"], prompts[i].size());
    }
  }
  // Without JSON each has a heading.
  const std::string text = Generate(flags);
  EXPECT_THAT(text, HasSubstr("--- 0 ---\n"));
  EXPECT_THAT(text, HasSubstr("--- 1 ---\nThe secret number of Benedick is 28792.\n"));
}

TEST(GenerateTest, TwoRanksOfTwoLoopsAnswerAsOne) {
  const TemporaryFolder folder;
  json prompts = json::array();
  json answers = json::array();
  for (const char* name : {"text0", "needle300", "text1"}) {
    const json golden = GoldenCase(name);
    prompts.push_back(golden["ids"]);
    answers.push_back(golden["greedy"]);
  }
  const std::string file = folder.Write("ids.json", prompts.dump());
  for (const char* partition : {"1,1,1,1", ""}) {
    std::vector<std::string> flags = {"--ids-file",
                                      file,
                                      "--max-tokens",
                                      "32",
                                      "--dtype",
                                      "f32",
                                      "--pp-size",
                                      "2",
                                      "--virtual-stages",
                                      "2",
                                      "--chunked-prefill-size",
                                      "64"};
    if (*partition != 0) flags.insert(flags.end(), {"--pp-layer-partition", partition});
    const json result = GenerateJson(flags);
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(result["outputs"][i]["ids"], answers[i]) << i;
    EXPECT_EQ(result["pipeline"]["stages"], 2);
    // Times per chunk and stage, of both loops.
    for (const json& chunk : result["pipeline"]["chunks"]) EXPECT_EQ(chunk["stage_ms"].size(), 2u);
  }
}

TEST(GenerateTest, EveryChunkPolicyGivesTheSameAnswer) {
  const TemporaryFolder folder;
  const json golden = GoldenCase("needle1000");
  const auto tokens = static_cast<int64_t>(golden["ids"].size());
  const std::string file = folder.Write("ids.json", golden["ids"].dump());
  const std::vector<std::vector<std::string>> policies = {
      {"--chunk-policy", "planned"},
      {"--chunk-policy", "planned", "--virtual-stages", "2"},
      {"--chunk-policy", "quadratic", "--dynamic-chunking-smooth-factor", "1"},
      {"--chunk-policy", "planned", "--enable-dynamic-chunking"}};  // quadratic
  for (const std::vector<std::string>& policy : policies) {
    std::vector<std::string> flags = {
        "--ids-file",  file, "--max-tokens",           "32", "--pp-size", "2", "--dtype", "f32",
        "--page-size", "16", "--chunked-prefill-size", "256"};
    flags.insert(flags.end(), policy.begin(), policy.end());
    const json result = GenerateJson(flags);
    EXPECT_EQ(result["outputs"][0]["ids"], golden["greedy"]) << fmt::format("{}", policy);
    int64_t begin = 0;
    for (const json& chunk : result["pipeline"]["chunks"]) {
      EXPECT_EQ(chunk["begin"], begin);
      begin = chunk["end"];
      EXPECT_LE(begin - chunk["begin"].get<int64_t>(), 256);
      EXPECT_TRUE(begin == tokens || begin % 16 == 0) << begin;
    }
    EXPECT_EQ(begin, tokens);
  }
}

// The second run begins with what the first one has learnt, and says so to nobody.
TEST(GenerateTest, WhatWasLearntIsKeptUnlessTheLayoutIsAnother) {
  const TemporaryFolder folder;
  const std::string costs = folder.path() / "costs";
  const std::string file = folder.Write("ids.json", GoldenCase("needle1000")["ids"].dump());
  const auto run = [&](const char* stages) {
    GenerateJson({"--ids-file", file, "--max-tokens", "1", "--pp-size", stages,
                  "--chunked-prefill-size", "32", "--cost-cache", costs});
  };
  const auto files = [&]() -> int64_t {
    if (!std::filesystem::exists(costs)) return 0;
    return std::distance(std::filesystem::directory_iterator(costs), {});
  };
  // What a busy machine teaches is not kept: then again.
  const auto run_until_kept = [&](const char* stages, int64_t kept) {
    for (int attempt = 0; attempt < 10 && files() < kept; ++attempt) run(stages);
    EXPECT_EQ(files(), kept);
  };
  run("1");
  run_until_kept("1", 1);
  run("1");
  EXPECT_EQ(files(), 1);
  run_until_kept("2", 2);
}

// Costs that no machine has show in the first chunk of a run that takes them from the file.
TEST(GenerateTest, WhatWasLearntIsTaken) {
  const TemporaryFolder folder;
  const std::string costs = folder.path() / "costs";
  const std::string file = folder.Write("ids.json", GoldenCase("needle1000")["ids"].dump());
  const auto chunks = [&](const char* size) {
    return GenerateJson({"--ids-file", file, "--max-tokens", "1", "--pp-size", "2", "--page-size",
                         "16", "--chunk-policy", "planned", "--chunked-prefill-size", size,
                         "--cost-cache", costs})["pipeline"]["chunks"];
  };
  // Short chunks, so that there is something to learn from; what a busy machine teaches is not
  // kept.
  for (int attempt = 0; attempt < 10; ++attempt) {
    chunks("32");
    if (std::filesystem::exists(costs) && !std::filesystem::is_empty(costs)) break;
  }
  ASSERT_TRUE(std::filesystem::exists(costs) && !std::filesystem::is_empty(costs));
  const std::filesystem::path kept = *std::filesystem::directory_iterator(costs);
  const auto with_costs = [&](double per_step, double per_token) {
    std::ifstream in(kept);
    json changed = json::parse(in);
    for (json& stage : changed["stages"])
      for (auto& [name, value] : stage.items())
        if (name != "top_k")
          value = name == "per_step" ? per_step : name == "per_token" ? per_token : 0;
    std::ofstream(kept) << changed;
  };
  const auto tokens = static_cast<int64_t>(GoldenCase("needle1000")["ids"].size());
  with_costs(100, 1e-6);
  EXPECT_EQ(chunks("2048")[0]["end"], tokens);
  with_costs(1e-9, 1);
  EXPECT_EQ(chunks("2048")[0]["end"], 16);
}

TEST(GenerateTest, ASecondTurnBeginsBehindTheFirst) {
  const TemporaryFolder folder;
  const json golden = GoldenCase("needle300");
  json second = golden["ids"];
  for (const char* part : {"greedy", "ids"})
    second.insert(second.end(), golden[part].begin(), golden[part].end());
  const std::string file = folder.Write("ids.json", json{golden["ids"], second}.dump());
  std::vector<std::string> flags = {"--ids-file", file,  "--max-tokens", "32",
                                    "--pp-size",  "2",   "--page-size",  "16",
                                    "--dtype",    "f32", "--sequential", "--chunked-prefill-size",
                                    "100"};
  const json outputs = GenerateJson(flags)["outputs"];
  EXPECT_EQ(outputs[0]["cached_tokens"], 0);
  EXPECT_EQ(outputs[0]["ids"], golden["greedy"]);
  // All but the answer's last token, in whole pages.
  const auto computed = static_cast<int64_t>(golden["ids"].size() + golden["greedy"].size()) - 1;
  EXPECT_EQ(outputs[1]["cached_tokens"], computed / 16 * 16);
  EXPECT_EQ(outputs[1]["prompt_tokens"], second.size());
  flags.emplace_back("--disable-radix-cache");
  const json without = GenerateJson(flags)["outputs"];
  EXPECT_EQ(without[1]["cached_tokens"], 0);
  EXPECT_EQ(without[1]["ids"], outputs[1]["ids"]);
}

TEST(GenerateTest, EndsBeforeAStopString) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("ids.json", GoldenCase("needle300")["ids"].dump());
  const json result = GenerateJson({"--ids-file", file, "--stop", "nothing", "--stop", " Bene"});
  EXPECT_EQ(result["outputs"][0]["text"], "The secret number of");
  EXPECT_EQ(result["outputs"][0]["finish_reason"], "stop");
  EXPECT_EQ(Generate({"--ids-file", file, "--stop", "is 28"}), "The secret number of Benedick \n");
}

TEST(GenerateTest, ASeedRepeatsItsChoices) {
  const auto draw = [](const char* seed, const char* stages) {
    return GenerateJson({"--prompt", "My lord", "--max-tokens", "24", "--temperature", "1",
                         "--top-p", "0.95", "--seed", seed, "--ignore-eos", "--backend",
                         "reference", "--pp-size", stages})["outputs"][0]["ids"];
  };
  const json first = draw("7", "1");
  EXPECT_EQ(first.size(), 24u);
  EXPECT_EQ(draw("7", "1"), first);
  EXPECT_EQ(draw("7", "2"), first);
  EXPECT_NE(draw("8", "1"), first);
}

TEST(GenerateTest, ReportsLogProbabilities) {
  const json output = GenerateJson({"--prompt", "My lord", "--max-tokens", "3", "--ignore-eos",
                                    "--logprobs", "2"})["outputs"][0];
  ASSERT_EQ(output["logprobs"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const json& entry = output["logprobs"][i];
    EXPECT_EQ(entry["id"], output["ids"][i]);
    ASSERT_EQ(entry["top"].size(), 2u);
    EXPECT_EQ(entry["top"][0]["id"], entry["id"]) << "greedy takes the best";
    EXPECT_LE(entry["logprob"], 0.0);
    EXPECT_GE(entry["top"][0]["logprob"], entry["top"][1]["logprob"]);
  }
}

TEST(GenerateTest, TextComesWhileItIsGenerated) {
  // A reader that goes away ends a generation that would take long.
  const TemporaryFolder folder;
  const Outcome outcome =
      RunProgram({"-c", std::string("'") + LONGSPAN_PROGRAM +
                            "' generate --prompt Who --max-tokens 40000 --ignore-eos | head -c 1"},
                 {.timeout = std::chrono::seconds(20), .program = "/bin/sh"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output.size(), 1u);
  EXPECT_EQ(outcome.errors.substr(outcome.errors.find("longspan: ")),
            "longspan: cannot write to the standard output: Broken pipe\n");
}

TEST(GenerateTest, WorksFromAnyFolderAndThroughALink) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(LONGSPAN_PROGRAM, folder.path() / "ls");
  const std::string here = Generate({"--prompt", "My lord", "--max-tokens", "4"});
  const RunOptions elsewhere = {.directory = folder.path(),
                                .program = (folder.path() / "ls").string()};
  EXPECT_EQ(Generate({"--prompt", "My lord", "--max-tokens", "4", "--pp-size", "2"}, elsewhere),
            here);
}

TEST(GenerateTest, EnvironmentVariablesMirrorFlagsAndAFlagWins) {
  const std::vector<std::string> arguments = {"--prompt", "My lord", "--max-tokens", "2"};
  const RunOptions two = {.environment = {{"LONGSPAN_PP_SIZE", "2"}}};
  EXPECT_EQ(GenerateJson(arguments, two)["pipeline"]["stages"], 2);
  auto with_flag = arguments;
  with_flag.insert(with_flag.end(), {"--pp-size", "3"});
  EXPECT_EQ(GenerateJson(with_flag, two)["pipeline"]["stages"], 3);
  const RunOptions partition = {
      .environment = {{"LONGSPAN_PP_SIZE", "2"}, {"SGLANG_PP_LAYER_PARTITION", "1,3"}}};
  EXPECT_EQ(GenerateJson(arguments, partition)["pipeline"]["stages"], 2);
  const Outcome wrong = RunProgram({"generate", "--prompt", "x"},
                                   {.environment = {{"LONGSPAN_MODEL_PATH", "/none"}}});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.errors, HasSubstr("'/none'"));
}

TEST(GenerateTest, TheFirstTokenOfAShortPromptComesSoonAfterTheStart) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = RunProgram(
        {"generate", "--prompt", "Who is there?", "--max-tokens", "1", "--pp-size", "2"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    best = std::min(best, outcome.seconds);
  }
  fmt::print("start to first token and end, two stages: {:.3f} s\n", best);
  // The aim is 0.5 s; the machine that runs this may be busy.
  EXPECT_LT(best, 5);
}

TEST(GenerateTest, ProgressIsShownOnATerminalOnly) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("ids.json", GoldenCase("needle2048")["ids"].dump());
  const std::vector<std::string> arguments = {
      "generate", "--ids-file", file, "--max-tokens",           "1",  "--threads",
      "1",        "--pp-size",  "2",  "--chunked-prefill-size", "128"};
  const Outcome terminal = RunProgram(arguments, {.terminal = true});
  EXPECT_EQ(terminal.exit_code, 0) << terminal.errors;
  EXPECT_THAT(terminal.errors,
              ::testing::ContainsRegex("Prefill \\[#*-+\\] +[0-9]+%  [0-9,]+ of 2,024 tokens"));
  const Outcome pipe = RunProgram(arguments);
  EXPECT_EQ(pipe.errors.find("Prefill"), std::string::npos);
  EXPECT_EQ(pipe.errors.find('\r'), std::string::npos);
}

}  // namespace
}  // namespace longspan::testing
