#include "tests/engine/golden.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"

namespace longspan::testing {
namespace {

// Where the reference's best two tokens are closer than this share of the logits' standard
// deviation, another arithmetic may choose the other one, and what follows is another text.
constexpr double kNearTie = 0.08;

using checkpoint::SafetensorsFile;

std::vector<std::vector<float>> ReadRows(SafetensorsFile& file, const std::string& name) {
  const tensor::ConstView view = file.Read(name).value();
  std::vector<std::vector<float>> rows;
  for (int64_t i = 0; i < view.size(0); ++i)
    rows.emplace_back(view.row<float>(i), view.row<float>(i) + view.size(1));
  return rows;
}

std::vector<int32_t> ReadInts(SafetensorsFile& file, const std::string& name) {
  const tensor::ConstView view = file.Read(name).value();
  return {view.data<int32_t>(), view.data<int32_t>() + view.elements()};
}

std::vector<std::vector<int32_t>> ReadSelected(SafetensorsFile& file, const std::string& name) {
  std::vector<std::vector<int32_t>> layers;
  if (!file.Has(name)) return layers;
  const tensor::ConstView view = file.Read(name).value();
  for (int64_t i = 0; i < view.size(0); ++i)
    layers.emplace_back(view.row<int32_t>(i), view.row<int32_t>(i) + view.size(1));
  return layers;
}

std::vector<GoldenCase> ReadRandom(SafetensorsFile& file) {
  std::vector<GoldenCase> cases;
  for (const char* name : {"n1", "n7", "n64", "n333"}) {
    const std::string prefix = std::string(name) + ".";
    GoldenCase& golden = cases.emplace_back();
    golden.name = name;
    golden.ids = ReadInts(file, prefix + "ids");
    golden.logits = ReadRows(file, prefix + "logits");
    golden.hidden = ReadRows(file, prefix + "hidden_last");
    golden.positions.resize(golden.logits.size());
    std::iota(golden.positions.begin(), golden.positions.end(),
              static_cast<int64_t>(golden.ids.size() - golden.logits.size()));
  }
  return cases;
}

std::vector<GoldenCase> ReadTrained(SafetensorsFile& file, const std::filesystem::path& json_path) {
  std::ifstream stream(json_path);
  std::vector<GoldenCase> cases;
  for (const auto& entry : nlohmann::json::parse(stream)) {
    GoldenCase& golden = cases.emplace_back();
    golden.name = entry["name"];
    golden.ids = entry["ids"].get<std::vector<int32_t>>();
    golden.greedy = entry["greedy"].get<std::vector<int32_t>>();
    golden.greedy_text = entry["greedy_text"];
    golden.logits = ReadRows(file, golden.name + ".logits");
    golden.hidden = ReadRows(file, golden.name + ".hidden_last");
    golden.selected = ReadSelected(file, golden.name + ".topk_last");
    for (const int32_t position : ReadInts(file, golden.name + ".positions"))
      golden.positions.push_back(position);
  }
  std::sort(cases.begin(), cases.end(),
            [](const GoldenCase& a, const GoldenCase& b) { return a.ids.size() < b.ids.size(); });
  return cases;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0;
  double scale = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference = std::max(difference, std::abs(double{got[i]} - want[i]));
    scale = std::max(scale, std::abs(double{want[i]}));
  }
  return difference / scale;
}

double StandardDeviation(const std::vector<float>& row) {
  const double mean =
      std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(row.size());
  double sum = 0;
  for (const float value : row) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(row.size()));
}

}  // namespace

std::vector<GoldenCase> ReadGolden(const std::string& model) {
  const std::filesystem::path folder =
      IsFixture(model) ? FixturesFolder() / "golden" : SourceFolder() / "tests/data/golden";
  const bool random = model.starts_with("rand-");
  auto file =
      SafetensorsFile::Open(folder / (model + (random ? ".golden.safetensors" : ".safetensors")))
          .value();
  return random ? ReadRandom(file) : ReadTrained(file, folder / (model + ".json"));
}

Deviation Compare(const Scores& scores, const GoldenCase& golden) {
  LONGSPAN_CHECK(
      scores.logits.size() == golden.logits.size() && scores.hidden.size() == golden.hidden.size(),
      "{} rows and {} depths, {} and {} are golden", scores.logits.size(), scores.hidden.size(),
      golden.logits.size(), golden.hidden.size());
  Deviation deviation{.rows = static_cast<int64_t>(golden.logits.size())};
  double scale = 0;
  double difference = 0;
  for (size_t row = 0; row < golden.logits.size(); ++row) {
    const auto& want = golden.logits[row];
    const auto& got = scores.logits[row];
    const double deviation_of_row = StandardDeviation(want);
    double sum = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = std::abs(double{got[i]} - want[i]);
      difference = std::max(difference, error);
      scale = std::max(scale, std::abs(double{want[i]}));
      sum += error;
    }
    deviation.mean += sum / static_cast<double>(want.size()) / deviation_of_row;
    const auto chosen = std::max_element(got.begin(), got.end()) - got.begin();
    const double margin =
        *std::max_element(want.begin(), want.end()) - want[static_cast<size_t>(chosen)];
    deviation.flips += margin > 0.08 * deviation_of_row ? 1 : 0;
  }
  deviation.mean /= static_cast<double>(deviation.rows);
  deviation.largest = difference / scale;
  for (size_t depth = 0; depth < golden.hidden.size(); ++depth)
    deviation.hidden =
        std::max(deviation.hidden, RelativeError(scores.hidden[depth], golden.hidden[depth]));
  return deviation;
}

size_t IdsBeforeANearTie(engine::Engine& engine, const GoldenCase& golden) {
  auto ids = golden.ids;
  ids.insert(ids.end(), golden.greedy.begin(), golden.greedy.end());
  std::vector<int64_t> positions;
  for (size_t i = 0; i + 1 <= golden.greedy.size(); ++i)
    positions.push_back(static_cast<int64_t>(golden.ids.size() + i) - 1);
  positions.push_back(static_cast<int64_t>(ids.size()) - 1);
  const Scores scores = Score(engine, ids, positions);
  for (size_t i = 0; i < golden.greedy.size(); ++i) {
    auto sorted = scores.logits[i];
    double mean = 0;
    double square = 0;
    for (const float value : sorted) {
      mean += value / static_cast<double>(sorted.size());
      square += double{value} * value / static_cast<double>(sorted.size());
    }
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    if (sorted[0] - sorted[1] < kNearTie * std::sqrt(square - mean * mean)) return i;
  }
  return golden.greedy.size();
}

}  // namespace longspan::testing
