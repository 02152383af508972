// `longspan score`, `tokenize` and `detokenize`, as a user calls them.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

json RunJson(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.emplace_back("--json");
  const Outcome outcome = RunProgram(arguments, options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  json parsed = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(parsed.is_object()) << outcome.output;
  return parsed;
}

std::vector<int64_t> Shape(const tensor::ConstView& view) {
  std::vector<int64_t> shape;
  for (int i = 0; i < view.rank(); ++i) shape.push_back(view.size(i));
  return shape;
}

TEST(ScoreTest, WritesLogitsAndHiddenStates) {
  const TemporaryFolder folder;
  const std::string ids = folder.Write("ids.json", "[873, 269, 473, 368, 357]");
  const std::string logits_out = folder.path() / "logits.safetensors";
  const std::string hidden_out = folder.path() / "hidden.safetensors";
  for (const char* stages : {"1", "2"}) {
    const json score =
        RunJson({"score", "--ids-file", ids, "--positions", "0,2,-1", "--dtype", "f32",
                 "--logits-out", logits_out, "--hidden-out", hidden_out, "--pp-size", stages});
    EXPECT_EQ(score["tokens"], 5);
    ASSERT_EQ(score["logprobs"].size(), 5u);
    // Of the token after each chosen position.
    EXPECT_TRUE(score["logprobs"][0].is_null());
    EXPECT_TRUE(score["logprobs"][2].is_null());
    EXPECT_TRUE(score["logprobs"][4].is_null());

    auto file = checkpoint::SafetensorsFile::Open(logits_out);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto logits = file->Read("logits");
    const auto positions = file->Read("positions");
    ASSERT_TRUE(logits.ok() && positions.ok());
    EXPECT_THAT(Shape(*logits), ElementsAre(3, 1024));
    EXPECT_EQ(logits->dtype(), tensor::DType::kF32);
    EXPECT_EQ(positions->dtype(), tensor::DType::kI32);
    const auto* numbers = static_cast<const int32_t*>(positions->raw());
    EXPECT_THAT(std::vector<int32_t>(numbers, numbers + 3), ElementsAre(0, 2, 4));
    // The log-probability is that of the logits.
    const auto* row = static_cast<const float*>(logits->raw());
    double sum = 0;
    for (int i = 0; i < 1024; ++i) sum += std::exp(static_cast<double>(row[i]));
    EXPECT_NEAR(score["logprobs"][1].get<double>(), row[269] - std::log(sum), 1e-4);

    auto hidden_file = checkpoint::SafetensorsFile::Open(hidden_out);
    ASSERT_TRUE(hidden_file.ok()) << hidden_file.status().message();
    const auto hidden = hidden_file->Read("hidden_last");
    ASSERT_TRUE(hidden.ok());
    EXPECT_EQ(Shape(*hidden)[0], 5) << "four layers and the embedding";
    EXPECT_EQ(hidden->dtype(), tensor::DType::kF32);
  }
}

TEST(ScoreTest, JsonHasAllLogProbabilitiesAndTheirPerplexity) {
  const json score = RunJson({"score", "--ids-file", "-"}, {.input = "[873, 269, 473, 368]"});
  EXPECT_EQ(score.size(), 3u);
  EXPECT_EQ(score["tokens"], 4);
  ASSERT_EQ(score["logprobs"].size(), 4u);
  EXPECT_TRUE(score["logprobs"][0].is_null());
  double sum = 0;
  for (int i = 1; i < 4; ++i) {
    EXPECT_LT(score["logprobs"][i], 0.0);
    sum += score["logprobs"][i].get<double>();
  }
  EXPECT_NEAR(score["perplexity"].get<double>() / std::exp(-sum / 3), 1, 1e-6);
  const Outcome plain = RunProgram({"score", "--ids-file", "-"}, {.input = "[873, 269]"});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_THAT(plain.output, ::testing::StartsWith("2 tokens, perplexity "));
}

TEST(TokenizeTest, TextGoesToIdsAndBack) {
  const TemporaryFolder folder;
  const std::string text = "  Süße Träume,\n\tmy lord 12345! \u4e2d\u6587 \U0001F600";
  const json tokens = RunJson({"tokenize", "--text", text});
  EXPECT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens["text"], text);
  const std::string file = folder.Write("text.txt", text);
  EXPECT_EQ(RunJson({"tokenize", "--text-file", file})["ids"], tokens["ids"]);
  EXPECT_EQ(RunJson({"tokenize", "--text-file", "-"}, {.input = text})["ids"], tokens["ids"]);
  const Outcome plain = RunProgram({"tokenize", "--text", text});
  EXPECT_EQ(json::parse(plain.output), tokens["ids"]);
  // What tokenize prints is what detokenize reads.
  const std::string ids = folder.Write("ids.json", plain.output);
  EXPECT_EQ(RunJson({"detokenize", "--ids-file", ids}), (json{{"text", text}}));
  EXPECT_EQ(RunProgram({"detokenize", "--ids-file", ids}).output, text + "\n");
}

TEST(TokenizeTest, AConversationIsRenderedByTheModelsTemplate) {
  const TemporaryFolder folder;
  const std::string chat = folder.Write(
      "chat.json", R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true})");
  const json tokens = RunJson({"tokenize", "--chat", chat});
  EXPECT_THAT(tokens["text"].get<std::string>(),
              ::testing::StartsWith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
  const std::string ids = folder.Write("ids.json", tokens["ids"].dump());
  EXPECT_EQ(RunJson({"detokenize", "--ids-file", ids})["text"], tokens["text"]);
}

}  // namespace
}  // namespace longspan::testing
