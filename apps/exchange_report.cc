#include "apps/exchange_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "apps/bench_table.h"
#include "plan/context_volume.h"
#include "plan/exchange_volume.h"
#include "plan/expert_share.h"
#include "plan/tensor_share.h"

namespace longspan::apps {
namespace {

// Of all ranks of the stages together, per token and lane.
double TensorFormula(const spec::ModelSpec& model, const ExchangeShape& shape) {
  const int64_t row_bytes = model.hidden_size * shape.element;
  const int64_t rows = shape.step_rows / shape.mesh.cp;
  const double embedding = plan::SumBytes(rows * row_bytes, shape.mesh.tp);
  const double layers = model.layers() * plan::TensorLayerBytes(rows, row_bytes, shape.mesh.tp);
  return (embedding + layers) / static_cast<double>(shape.step_rows);
}

// How many of a prompt's tokens are in steps in which an indexer selects.
double SelectingShare(const spec::ModelSpec& model, const ExchangeShape& shape) {
  if (!model.indexer || shape.prompt_length <= model.indexer->top_k) return 0;
  const int64_t dense = model.indexer->top_k / shape.step_rows * shape.step_rows;
  return 1 - static_cast<double>(dense) / static_cast<double>(shape.prompt_length);
}

double ContextFormula(const spec::ModelSpec& model, const ExchangeShape& shape) {
  const auto volume_of = shape.shares_cache ? plan::ShardedVolume : plan::ReplicatedVolume;
  const plan::ContextVolume volume =
      volume_of(plan::ShareOf(model, shape.mesh.tp), shape.mesh.cp, shape.cached, shape.element);
  return model.layers() *
         (volume.per_token_layer + SelectingShare(model, shape) * volume.per_selecting_token_layer);
}

double ExpertFormula(const spec::ModelSpec& model, const ExchangeShape& shape) {
  const plan::ExpertVolume volume = {.ranks = shape.mesh.ep,
                                     .hidden = model.hidden_size,
                                     .element = shape.element,
                                     .choices = model.moe.experts_per_token};
  const int64_t group_rows =
      shape.step_rows * plan::ExpertShareOf(shape.mesh, 0).row_sources() / shape.mesh.cp;
  const auto layers =
      std::count(model.feed_forward.begin(), model.feed_forward.end(), spec::FeedForwardKind::kMoe);
  const double mean_ranks = plan::MeanExpertRanks(volume, model.moe.experts);
  return static_cast<double>(layers) * plan::MeanExpertLayerBytes(volume, mean_ranks, group_rows) /
         static_cast<double>(shape.step_rows);
}

}  // namespace

std::vector<AxisVolume> ExchangeVolumes(const spec::ModelSpec& model, const ExchangeShape& shape,
                                        const PipelineReport::Traffic& traffic) {
  const spec::Mesh& mesh = shape.mesh;
  const double tokens_and_lanes =
      static_cast<double>(std::max<int64_t>(1, traffic.rows) * mesh.stage_ranks());
  const auto counted = [&](int64_t bytes) { return static_cast<double>(bytes) / tokens_and_lanes; };
  std::vector<AxisVolume> volumes;
  if (mesh.pp > 1) {
    const int64_t boundaries = int64_t{mesh.pp} * shape.loops - 1;
    const auto bytes = static_cast<double>(boundaries * model.hidden_size * shape.element);
    volumes.push_back({"pp", counted(traffic.boundary_bytes), bytes / mesh.cp});
  }
  if (mesh.cp > 1)
    volumes.push_back({"cp", counted(traffic.stage_bytes.context), ContextFormula(model, shape)});
  if (mesh.tp > 1)
    volumes.push_back({"tp", counted(traffic.stage_bytes.tensor), TensorFormula(model, shape)});
  if (mesh.ep > 1)
    volumes.push_back({"ep", counted(traffic.stage_bytes.expert), ExpertFormula(model, shape)});
  return volumes;
}

nlohmann::ordered_json ToJson(const std::vector<AxisVolume>& volumes) {
  auto json = nlohmann::ordered_json::object();
  for (const AxisVolume& volume : volumes)
    json[volume.axis] = {{"counted", volume.counted}, {"formula", volume.formula}};
  return json;
}

std::string ToText(const std::vector<AxisVolume>& volumes) {
  if (volumes.empty()) return {};
  BenchTable table({{"axis", ""}, {"received", "bytes/token"}, {"by formula", "bytes/token"}});
  for (const AxisVolume& volume : volumes)
    table.AddRow({volume.axis, WithThousands(volume.counted), WithThousands(volume.formula)});
  return table.ToText();
}

}  // namespace longspan::apps
