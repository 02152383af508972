// Costs that were learnt, kept from one run of the program to the next.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/chunk_cost.h"

namespace longspan::apps {

// What the costs hold for, as pairs of a name and a value: model, backend, hardware, layout.
using CostCacheKey = std::vector<std::pair<std::string, std::string>>;

// One small JSON file with the costs of all stages and what they hold for. It only saves learning
// them anew: whatever is wrong with it is a line in the log. Files are replaced as a whole, so that
// two programs do not mix theirs.
class CostCache {
 public:
  // An empty folder: neither reads nor writes.
  CostCache(const std::filesystem::path& folder, std::string name, CostCacheKey key);

  // Nothing where there is no file, where it is broken, of another version or for another key (the
  // log says which), has other stages, or one that costs nothing. `top_k` of the model's attention.
  std::optional<plan::PipelineCost> Load(const plan::PipelineShape& shape, int64_t top_k) const;
  void Save(const plan::PipelineCost& cost) const;

 private:
  std::filesystem::path file_;
  CostCacheKey key_;
};

// $XDG_CACHE_HOME/longspan/costs, by default in ~/.cache; empty where there is no home.
std::filesystem::path DefaultCostFolder();

// The processor's name as the system tells it; its maker's and its part's number where it has none,
// as on Arm.
std::string ProcessorName();
// The same of a text like /proc/cpuinfo.
std::string ProcessorNameIn(std::istream& text);

}  // namespace longspan::apps
