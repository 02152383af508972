// A real model, where tools/install_smollm2.py has put it: SmolLM2-135M-Instruct.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::filesystem::path(kFolder) / "config.json"))
      GTEST_SKIP() << "there is no " << kFolder
                   << ", which tools/install_smollm2.py makes where it can be downloaded";
  }

  static std::string Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--model-path", kFolder});
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    return outcome.output;
  }

  static constexpr const char* kFolder = LONGSPAN_SOURCE_DIR "/models/SmolLM2-135M-Instruct";
};

// Log-probabilities of the tokens of a text but the first, as one of the golden file's columns.
std::vector<double> Column(const json& golden, const char* name) {
  return golden[name].get<std::vector<double>>();
}

std::vector<double> Differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b.at(i));
  return differences;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double RootMeanSquare(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST_F(SmolLm2Test, AnswersInEnglish) {
  EXPECT_THAT(Run({"generate", "--ask", "What is the capital of France?", "--max-tokens", "40"}),
              HasSubstr("Paris"));
}

TEST_F(SmolLm2Test, AskIsAConversationOfOneMessage) {
  const TemporaryFolder folder;
  const std::string chat = folder.Write(
      "chat.json", R"({"messages": [{"role": "user", "content": "Tom is six.\n\n\nHow old?"}]})");
  const std::string document = folder.Write("document.txt", "Tom is six.\n");
  const auto ids = [](const std::string& output) { return json::parse(output)["outputs"][0]; };
  const json asked = ids(Run(
      {"generate", "--json", "--document", document, "--ask", "How old?", "--max-tokens", "8"}));
  const json told = ids(Run({"generate", "--json", "--chat", chat, "--max-tokens", "8"}));
  EXPECT_EQ(asked["prompt_tokens"], told["prompt_tokens"]);
  EXPECT_EQ(asked["ids"], told["ids"]);
}

// What must hold, and why, is written in tools/compare_perplexity.py, which made the golden file:
// llama.cpp in f32 on the same weights ("exact"), and on the file that they came from ("file").
TEST_F(SmolLm2Test, PerplexityIsThatOfLlamaCpp) {
  std::ifstream file(LONGSPAN_SOURCE_DIR "/tests/data/golden/smollm2-llamacpp.json");
  const json golden = json::parse(file);
  const TemporaryFolder folder;
  const std::string ids = folder.Write("ids.json", golden["ids"].dump());
  const auto score = [&](const char* dtype) {
    json logprobs =
        json::parse(Run({"score", "--json", "--ids-file", ids, "--dtype", dtype}))["logprobs"];
    logprobs.erase(size_t{0});
    return logprobs.get<std::vector<double>>();
  };
  const std::vector<double> exact = Column(golden, "exact");
  const std::vector<double> quantised = Column(golden, "file");
  ASSERT_GE(exact.size(), 500u);

  for (const double difference : Differences(score("f32"), exact))
    ASSERT_LT(std::abs(difference), 1e-3);

  const std::vector<double> bf16 = score("bf16");
  const double error = RootMeanSquare(Differences(quantised, exact));
  EXPECT_LT(RootMeanSquare(Differences(bf16, exact)), error);
  const double tolerance =
      3 * std::sqrt(2.0) * error / std::sqrt(static_cast<double>(exact.size())) + error * error;
  EXPECT_LT(std::abs(Mean(Differences(bf16, quantised))), tolerance);
}

}  // namespace
}  // namespace longspan::testing
