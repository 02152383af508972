#include "plan/layer_split.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "plan/model_work.h"

namespace longspan::plan {
namespace {

// Rows that reach the head, per row that passes through the layers.
constexpr double kHeadRowShare = 1.0 / 32;

base::Status CheckShape(const PipelineShape& shape, int layers) {
  if (shape.ranks < 1) return base::InvalidArgument("--pp-size must be at least 1");
  if (shape.loops < 1) return base::InvalidArgument("--virtual-stages must be at least 1");
  if (shape.ranks > layers)
    return base::InvalidArgument("--pp-size {} is more than the model's {} layers: use at most {}",
                                 shape.ranks, layers, layers);
  if (shape.loops > layers / shape.ranks)
    return base::InvalidArgument(
        "--pp-size {} with --virtual-stages {} needs {} layers and the model has {}: use "
        "--virtual-stages {} or less",
        shape.ranks, shape.loops, int64_t{shape.ranks} * shape.loops, layers, layers / shape.ranks);
  return base::OkStatus();
}

// Costs that differ by less are rounding errors.
constexpr double kSameCost = 1e-9;

struct Cuts {
  double cost = 0;
  std::vector<std::vector<int>>
      cut;  // [s][l]: where the last of s stages of the first l layers begins
};

// The cheapest way to cut the layers into stages, where cost(begin, end) are combined by
// `combine(all before, this one)`. Exact, O(stages x layers^2): models have at most some hundred
// layers.
template <typename Cost, typename Combine>
Cuts CheapestCuts(int layers, int stages, const Cost& cost, const Combine& combine) {
  const auto unreachable = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, unreachable));
  Cuts cuts{.cut = std::vector<std::vector<int>>(stages + 1, std::vector<int>(layers + 1, 0))};
  best[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int l = s; l <= layers; ++l) {
      for (int begin = s - 1; begin < l; ++begin) {
        const double total = combine(best[s - 1][begin], cost(begin, l));
        // Not worse, so that of equal splits the last cut wins: the later stage is the lighter one.
        if (total <= best[s][l] * (1 + kSameCost)) {
          best[s][l] = std::min(best[s][l], total);
          cuts.cut[s][l] = begin;
        }
      }
    }
  }
  cuts.cost = best[stages][layers];
  return cuts;
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

EndCosts EndCostsOf(const spec::ModelSpec& model) {
  return {.embedding = static_cast<double>(model.hidden_size),
          .head = kHeadRowShare * static_cast<double>(model.hidden_size) *
                  static_cast<double>(model.vocab_size)};
}

base::Result<std::vector<LayerRange>> SplitLayers(std::span<const double> costs,
                                                  const PipelineShape& shape, const EndCosts& ends,
                                                  const StageFits& fits) {
  const int layers = static_cast<int>(costs.size());
  LONGSPAN_RETURN_IF_ERROR(CheckShape(shape, layers));
  const int stages = shape.stages();
  std::vector<double> sum(costs.size() + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), sum.begin() + 1);
  // Whoever has the last layer has the head; the embedding counts likewise.
  sum.back() += ends.head;
  sum.front() -= ends.embedding;

  constexpr double kUnreachable = std::numeric_limits<double>::infinity();
  const auto range_cost = [&](int begin, int end) {
    return fits && !fits({begin, end}) ? kUnreachable : sum[end] - sum[begin];
  };
  const double most = CheapestCuts(layers, stages, range_cost, [](double a, double b) {
                        return std::max(a, b);
                      }).cost;
  if (most == kUnreachable)
    return base::ResourceExhausted("no division of {} layers into {} stages fits the memory",
                                   layers, stages);
  // The others as even as can be, since a rank with several of them computes their sum.
  const auto square = [&](int begin, int end) {
    const double cost = range_cost(begin, end);
    return cost <= most * (1 + kSameCost) ? cost * cost : kUnreachable;
  };
  const auto cut = CheapestCuts(layers, stages, square, std::plus<>()).cut;
  std::vector<LayerRange> ranges(stages);
  for (int s = stages, end = layers; s > 0; --s) {
    ranges[s - 1] = {cut[s][end], end};
    end = cut[s][end];
  }
  return ranges;
}

base::Result<std::vector<LayerRange>> ParseLayerPartition(std::string_view text, int layers,
                                                          const PipelineShape& shape) {
  LONGSPAN_RETURN_IF_ERROR(CheckShape(shape, layers));
  const int stages = shape.stages();
  std::vector<LayerRange> ranges;
  int64_t begin = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    int count = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, count);
    if (error != std::errc() || end != text.data() + comma || count < 1)
      return base::InvalidArgument(
          "the layer partition '{}' must be positive numbers separated by commas, one per stage "
          "and loop",
          text);
    ranges.push_back(
        {static_cast<int>(begin), static_cast<int>(std::min<int64_t>(begin + count, INT32_MAX))});
    begin += count;
    at = comma + 1;
  }
  if (static_cast<int>(ranges.size()) != stages || begin != layers)
    return base::InvalidArgument(
        "the layer partition '{}' has {} entries that sum to {}: {} stages x {} loops of a model "
        "of {} layers need {} entries that sum to {}",
        text, ranges.size(), begin, shape.ranks, shape.loops, layers, stages, layers);
  return ranges;
}

std::vector<LayerRange> RangesOfRank(std::span<const LayerRange> stages, int ranks, int rank) {
  std::vector<LayerRange> ranges;
  for (size_t stage = static_cast<size_t>(rank); stage < stages.size();
       stage += static_cast<size_t>(ranks))
    ranges.push_back(stages[stage]);
  return ranges;
}

}  // namespace longspan::plan
