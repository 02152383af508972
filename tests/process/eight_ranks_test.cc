// Eight ranks as processes: stages, context-parallel, tensor-parallel and expert-parallel ranks at
// once, against the reference outputs of Hugging Face transformers.
#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using checkpoint::SafetensorsFile;

const std::string kData = LONGSPAN_SOURCE_DIR "/tests/data/";

struct Rows {
  std::vector<float> values;  // [rows, vocabulary]
  int64_t rows = 0;

  static Rows Read(SafetensorsFile& file, const std::string& name) {
    const tensor::ConstView view = file.Read(name).value();
    return {{view.data<float>(), view.data<float>() + view.elements()}, view.size(0)};
  }
};

// Scores the prompt's last rows with eight ranks; how far they are from the golden ones, relative
// to the largest logit.
double Deviation(const std::string& model, std::span<const int32_t> ids, const Rows& golden,
                 const std::vector<std::string>& more) {
  const TemporaryFolder folder;
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < golden.rows; ++row)
    positions.push_back(static_cast<int64_t>(ids.size()) - golden.rows + row);
  const std::string logits_out = folder.path() / "logits.safetensors";
  std::vector<std::string> arguments = {
      "score",
      "--model-path",
      model,
      "--dtype",
      "f32",
      "--pp-size",
      "2",
      "--cp-size",
      "2",
      "--tp-size",
      "2",
      "--threads",
      "1",
      "--chunked-prefill-size",
      "50",
      "--logits-out",
      logits_out,
      "--positions",
      fmt::format("{}", fmt::join(positions, ",")),
      "--ids-file",
      folder.Write("ids.json", nlohmann::json(std::vector(ids.begin(), ids.end())).dump())};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = RunProgram(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.left.empty());
  auto file = SafetensorsFile::Open(logits_out);
  if (!file.ok()) return INFINITY;
  const Rows got = Rows::Read(*file, "logits");
  if (got.values.size() != golden.values.size()) return INFINITY;
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    largest = std::max<double>(largest, std::abs(golden.values[i]));
    difference = std::max<double>(difference, std::abs(got.values[i] - golden.values[i]));
  }
  return difference / largest;
}

TEST(EightRanksTest, OfRandomModelsGiveTheReferencesLogits) {
  struct Case {
    const char* model;
    std::vector<std::string> more;
  };
  const std::vector<Case> cases = {
      {"rand-llama", {}},
      {"rand-qwen3", {"--cp-strategy", "zigzag"}},
      {"rand-deepseek-v32", {"--ep-size", "4"}},
      {"rand-deepseek-v32", {"--ep-size", "2", "--kv-placement", "sharded"}}};
  for (const Case& c : cases) {
    auto file =
        SafetensorsFile::Open(fmt::format("{}golden/{}.golden.safetensors", kData, c.model));
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (const char* prompt : {"n7", "n333"}) {
      const tensor::ConstView ids = file->Read(fmt::format("{}.ids", prompt)).value();
      EXPECT_LE(Deviation(fmt::format("{}models/{}", kData, c.model),
                          {ids.data<int32_t>(), static_cast<size_t>(ids.elements())},
                          Rows::Read(*file, fmt::format("{}.logits", prompt)), c.more),
                1e-4)
          << c.model << ' ' << prompt << ' ' << fmt::format("{}", c.more);
    }
  }
}

TEST(EightRanksTest, OfATrainedModelGiveTheReferencesText) {
  std::ifstream file(kData + "golden/tiny-qwen3-moe.json");
  for (const nlohmann::json& golden : nlohmann::json::parse(file)) {
    if (golden["ids"].size() > 300) continue;
    const TemporaryFolder folder;
    const Outcome outcome = RunProgram(
        {"generate", "--json", "--dtype", "f32", "--ids-file",
         folder.Write("ids.json", golden["ids"].dump()), "--max-tokens", "32", "--pp-size", "2",
         "--cp-size", "2", "--tp-size", "2", "--ep-size", "2", "--chunked-prefill-size", "50"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    const auto result = nlohmann::json::parse(outcome.output);
    EXPECT_EQ(result["outputs"][0]["ids"], golden["greedy"]) << golden["name"];
    EXPECT_EQ(result["outputs"][0]["text"], golden["greedy_text"]) << golden["name"];
  }
}

}  // namespace
}  // namespace longspan::testing
