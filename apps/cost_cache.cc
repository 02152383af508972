#include "apps/cost_cache.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace longspan::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Of the file's form and of what the coefficients mean.
constexpr int kVersion = 1;

struct Field {
  const char* name;
  double plan::ChunkCost::*value;
};
constexpr std::array<Field, 8> kFields = {{
    {"per_step", &plan::ChunkCost::per_step},
    {"per_prefix_token", &plan::ChunkCost::per_prefix_token},
    {"per_token", &plan::ChunkCost::per_token},
    {"per_pair", &plan::ChunkCost::per_pair},
    {"per_index_pair", &plan::ChunkCost::per_index_pair},
    {"per_selected_pair", &plan::ChunkCost::per_selected_pair},
    {"per_decode_row", &plan::ChunkCost::per_decode_row},
    {"per_decode_position", &plan::ChunkCost::per_decode_position},
}};

// Null where a coefficient is missing or cannot be one.
std::optional<plan::ChunkCost> ReadCost(const ordered_json& object) {
  plan::ChunkCost cost;
  for (const Field& field : kFields) {
    const auto found = object.find(field.name);
    if (found == object.end() || !found->is_number()) return std::nullopt;
    const auto value = found->get<double>();
    if (!std::isfinite(value) || value < 0) return std::nullopt;
    cost.*field.value = value;
  }
  const auto top_k = object.find("top_k");
  if (top_k == object.end() || !top_k->is_number_unsigned()) return std::nullopt;
  cost.top_k = top_k->get<int64_t>();
  if (!(cost.Seconds(0, 1) > 0)) return std::nullopt;
  return cost;
}

std::optional<plan::PipelineCost> ReadStages(const ordered_json& file,
                                             const plan::PipelineShape& shape, int64_t top_k) {
  const auto stages = file.find("stages");
  if (stages == file.end() || !stages->is_array() ||
      static_cast<int>(stages->size()) != shape.stages())
    return std::nullopt;
  plan::PipelineCost cost{.shape = shape, .stages = {}};
  for (const ordered_json& stage : *stages) {
    if (!stage.is_object()) return std::nullopt;
    const std::optional<plan::ChunkCost> read = ReadCost(stage);
    if (!read || read->top_k != top_k) return std::nullopt;
    cost.stages.push_back(*read);
  }
  return cost;
}

ordered_json ToJson(const CostCacheKey& key) {
  ordered_json object = ordered_json::object();
  for (const auto& [name, value] : key) object[name] = value;
  return object;
}

std::string FileName(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-'; }, '_');
  return name + ".json";
}

}  // namespace

CostCache::CostCache(const fs::path& folder, std::string name, CostCacheKey key)
    : key_(std::move(key)) {
  if (!folder.empty()) file_ = folder / FileName(std::move(name));
}

std::optional<plan::PipelineCost> CostCache::Load(const plan::PipelineShape& shape,
                                                  int64_t top_k) const {
  std::ifstream stream(file_);
  if (file_.empty() || !stream) return std::nullopt;
  spdlog::logger& log = base::Log("planner");
  const auto file = ordered_json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || file.value("version", ordered_json()) != kVersion) {
    log.info("{} is broken or of another version: chunk times are learnt anew", file_.string());
    return std::nullopt;
  }
  const ordered_json stored = file.value("key", ordered_json::object());
  for (const auto& [name, value] : key_) {
    if (stored.is_object() && stored.value(name, ordered_json()) == value) continue;
    log.info("{} is for another {} than '{}': chunk times are learnt anew", file_.string(), name,
             value);
    return std::nullopt;
  }
  std::optional<plan::PipelineCost> cost = ReadStages(file, shape, top_k);
  if (!cost) log.info("{} is broken: chunk times are learnt anew", file_.string());
  return cost;
}

void CostCache::Save(const plan::PipelineCost& cost) const {
  if (file_.empty()) return;
  ordered_json stages = ordered_json::array();
  for (const plan::ChunkCost& stage : cost.stages) {
    ordered_json object;
    for (const Field& field : kFields) object[field.name] = stage.*field.value;
    object["top_k"] = static_cast<uint64_t>(stage.top_k);
    stages.push_back(std::move(object));
  }
  const ordered_json file = {{"version", kVersion}, {"key", ToJson(key_)}, {"stages", stages}};
  std::error_code error;
  fs::create_directories(file_.parent_path(), error);
  // A name of its own: other engines may write at once, of this process or on other hosts.
  std::string written = file_.string() + ".XXXXXX";
  const int descriptor = mkstemp(written.data());
  if (descriptor >= 0) close(descriptor);
  std::ofstream stream(descriptor >= 0 ? written : std::string());
  stream << file.dump(2) << '\n';
  stream.close();
  if (stream) fs::rename(written, file_, error);
  if (stream && !error) return;
  if (descriptor >= 0) fs::remove(written, error);
  base::Log("planner").info("{} cannot be written: chunk times will be learnt anew",
                            file_.string());
}

fs::path DefaultCostFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return fs::path(cache) / "longspan" / "costs";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".cache" / "longspan" / "costs";
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  return ProcessorNameIn(file);
}

std::string ProcessorNameIn(std::istream& text) {
  std::vector<std::string> numbers;  // of all kinds of cores
  for (std::string line; std::getline(text, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    const bool is_number = line.starts_with("CPU implementer") || line.starts_with("CPU part");
    if (is_number && std::find(numbers.begin(), numbers.end(), value) == numbers.end())
      numbers.push_back(value);
  }
  return numbers.empty() ? "unknown" : fmt::format("{}", fmt::join(numbers, " "));
}

}  // namespace longspan::apps
