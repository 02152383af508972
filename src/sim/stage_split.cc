#include "sim/stage_split.h"

#include <algorithm>
#include <span>
#include <vector>

#include "plan/memory_use.h"

namespace longspan::sim {
namespace {

// What layers are split for: the middle of a prompt's work, and a chunk of usual length.
constexpr int64_t kSplitRows = 4096;
constexpr int kParts = 64;

double HeldBytes(const plan::Deployment& deployment, std::span<const plan::LayerRange> ranges,
                 const StageLoad& load) {
  const plan::MemoryUse use = plan::MemoryOfRank(deployment, ranges, 0);
  return use.weight_bytes +
         use.kv_bytes_per_token * static_cast<double>(load.prompt_tokens) / load.memory_fraction;
}

}  // namespace

double FullestRankBytes(const plan::Deployment& deployment, int ranks,
                        std::span<const plan::LayerRange> stages, const StageLoad& load) {
  double fullest = 0;
  for (int rank = 0; rank < ranks; ++rank)
    fullest =
        std::max(fullest, HeldBytes(deployment, plan::RangesOfRank(stages, ranks, rank), load));
  return fullest;
}

base::Result<std::vector<plan::LayerRange>> SplitWithinMemory(const plan::Deployment& deployment,
                                                              std::span<const double> costs,
                                                              const plan::EndCosts& ends,
                                                              const plan::PipelineShape& shape,
                                                              const StageLoad& load) {
  LONGSPAN_ASSIGN_OR_RETURN(auto by_cost, plan::SplitLayers(costs, shape, ends));
  const auto fit = [&](std::span<const plan::LayerRange> stages) {
    return FullestRankBytes(deployment, shape.ranks, stages, load) <= load.memory_bytes;
  };
  if (fit(by_cost)) return by_cost;
  // The bytes of a rank are those of its stages, so that one stage is the whole question. Asked
  // many times of the same ranges.
  const size_t layers = deployment.model.feed_forward.size();
  std::vector<double> held((layers + 1) * (layers + 1));
  for (size_t begin = 0; begin <= layers; ++begin) {
    for (size_t end = begin; end <= layers; ++end) {
      const plan::LayerRange range = {static_cast<int>(begin), static_cast<int>(end)};
      held[begin * (layers + 1) + end] = HeldBytes(deployment, {&range, 1}, load);
    }
  }
  const int parts = shape.loops == 1 ? 1 : kParts;
  for (int part = parts; part > 0; --part) {
    const double most = load.memory_bytes * part / parts;
    auto stages = plan::SplitLayers(costs, shape, ends, [&](plan::LayerRange range) {
      return held[static_cast<size_t>(range.begin) * (layers + 1) +
                  static_cast<size_t>(range.end)] <= most;
    });
    if (!stages.ok()) break;
    if (fit(*stages)) return stages;
  }
  return by_cost;
}

base::Result<std::vector<plan::LayerRange>> SplitByTimeAndMemory(const plan::HardwareCost& cost,
                                                                 const plan::PipelineShape& shape,
                                                                 const StageLoad& load) {
  const auto seconds = plan::LayerSeconds(cost, load.prompt_tokens / 2, kSplitRows);
  return SplitWithinMemory(cost.deployment(), seconds, {}, shape, load);
}

}  // namespace longspan::sim
