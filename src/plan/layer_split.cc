#include "plan/layer_split.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "plan/model_work.h"

namespace longspan::plan {
namespace {

base::Status CheckStages(int stages, int layers) {
  if (stages < 1) return base::InvalidArgument("--pp-size must be at least 1");
  if (stages > layers)
    return base::InvalidArgument("--pp-size {} is more than the model's {} layers: use at most {}",
                                 stages, layers, layers);
  return base::OkStatus();
}

}  // namespace

std::vector<double> LayerCosts(const spec::ModelSpec& model, int64_t depth) {
  const auto context = static_cast<double>(depth);
  const double attention =
      static_cast<double>(AttentionParameters(model)) +
      static_cast<double>(AttentionProducts(model)) * AttendedPositions(model, context) +
      static_cast<double>(IndexProducts(model)) * context;
  std::vector<double> costs;
  for (const spec::FeedForwardKind kind : model.feed_forward) {
    const double feed_forward = kind == spec::FeedForwardKind::kDense
                                    ? static_cast<double>(MlpParameters(model))
                                    : MoeParameters(model, model.moe.experts_per_token);
    costs.push_back(attention + feed_forward);
  }
  return costs;
}

base::Result<std::vector<LayerRange>> SplitLayers(std::span<const double> costs, int stages) {
  const int layers = static_cast<int>(costs.size());
  LONGSPAN_RETURN_IF_ERROR(CheckStages(stages, layers));
  std::vector<double> sum(costs.size() + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), sum.begin() + 1);

  // best[s][l]: the least maximum over s stages of the first l layers; cut[s][l]: where the last of
  // them begins. Exact, O(stages x layers^2): models have at most some hundred layers.
  const auto unreachable = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, unreachable));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int l = s; l <= layers; ++l) {
      for (int begin = s - 1; begin < l; ++begin) {
        const double cost = std::max(best[s - 1][begin], sum[l] - sum[begin]);
        // Not worse, so that of equal splits the last cut wins: the later stage is the lighter one.
        if (cost <= best[s][l]) {
          best[s][l] = cost;
          cut[s][l] = begin;
        }
      }
    }
  }
  std::vector<LayerRange> ranges(stages);
  for (int s = stages, end = layers; s > 0; --s) {
    ranges[s - 1] = {cut[s][end], end};
    end = cut[s][end];
  }
  return ranges;
}

base::Result<std::vector<LayerRange>> ParseLayerPartition(std::string_view text, int layers,
                                                          int stages) {
  LONGSPAN_RETURN_IF_ERROR(CheckStages(stages, layers));
  std::vector<LayerRange> ranges;
  int64_t begin = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int count = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, count);
    if (error != std::errc() || end != text.data() + comma || count < 1)
      return base::InvalidArgument(
          "the layer partition '{}' must be positive numbers separated by commas, one per stage",
          text);
    ranges.push_back(
        {static_cast<int>(begin), static_cast<int>(std::min<int64_t>(begin + count, INT32_MAX))});
    begin += count;
    at = comma + 1;
  }
  if (static_cast<int>(ranges.size()) != stages || begin != layers)
    return base::InvalidArgument(
        "the layer partition '{}' has {} entries that sum to {}: {} stages of a model of {} layers "
        "need {} "
        "entries that sum to {}",
        text, ranges.size(), begin, stages, layers, stages, layers);
  return ranges;
}

}  // namespace longspan::plan
