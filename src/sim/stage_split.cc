#include "sim/stage_split.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "plan/memory_use.h"

namespace longspan::sim {
namespace {

// What layers are split for: the middle of a prompt's work, and a chunk of usual length.
constexpr int64_t kSplitRows = 4096;
constexpr int kParts = 8;

double HeldBytes(const plan::HardwareCost& cost, std::span<const plan::LayerRange> ranges,
                 const StageLoad& load) {
  const plan::MemoryUse use = plan::MemoryOfRank(cost.deployment(), ranges, 0);
  return use.weight_bytes +
         use.kv_bytes_per_token * static_cast<double>(load.prompt_tokens) / load.memory_fraction;
}

std::vector<double> LayerBytes(const plan::HardwareCost& cost, const StageLoad& load) {
  std::vector<double> bytes;
  for (int layer = 0; layer < cost.deployment().model.layers(); ++layer) {
    const plan::LayerRange range = {layer, layer + 1};
    bytes.push_back(HeldBytes(cost, {&range, 1}, load));
  }
  return bytes;
}

// Their shares of the sum.
std::vector<double> Shares(std::vector<double> values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (double& value : values) value /= sum;
  return values;
}

}  // namespace

double FullestRankBytes(const plan::HardwareCost& cost, int ranks,
                        std::span<const plan::LayerRange> stages, const StageLoad& load) {
  double fullest = 0;
  for (int rank = 0; rank < ranks; ++rank)
    fullest = std::max(fullest, HeldBytes(cost, plan::RangesOfRank(stages, ranks, rank), load));
  return fullest;
}

base::Result<std::vector<plan::LayerRange>> SplitByTimeAndMemory(const plan::HardwareCost& cost,
                                                                 const plan::PipelineShape& shape,
                                                                 const StageLoad& load) {
  const auto seconds = Shares(plan::LayerSeconds(cost, load.prompt_tokens / 2, kSplitRows));
  LONGSPAN_ASSIGN_OR_RETURN(auto by_time, plan::SplitLayers(seconds, shape));
  if (FullestRankBytes(cost, shape.ranks, by_time, load) <= load.memory_bytes) return by_time;
  const auto bytes = Shares(LayerBytes(cost, load));
  for (int part = 1; part <= kParts; ++part) {
    const double share = static_cast<double>(part) / kParts;
    std::vector<double> costs;
    for (size_t layer = 0; layer < bytes.size(); ++layer)
      costs.push_back((1 - share) * seconds[layer] + share * bytes[layer]);
    LONGSPAN_ASSIGN_OR_RETURN(auto stages, plan::SplitLayers(costs, shape));
    if (FullestRankBytes(cost, shape.ranks, stages, load) <= load.memory_bytes) return stages;
  }
  return by_time;
}

}  // namespace longspan::sim
