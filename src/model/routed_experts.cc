#include "model/routed_experts.h"

#include <algorithm>

#include <fmt/format.h>

namespace longspan::model {

using tensor::DType;

base::Status RoutedExperts::Load(const spec::ModelSpec& model, const std::string& prefix,
                                 WeightLoader& loader) {
  const plan::ExpertShare& share = loader.experts();
  hidden_ = model.hidden_size;
  columns_ = share.ColumnsOf(model.moe.intermediate_size);
  const int pieces = share.column_parts;
  const int first = share.first(model.moe.experts);
  for (int e = first; e < first + share.count(model.moe.experts); ++e) {
    const std::string expert = fmt::format("{}experts.{}.", prefix, e);
    LONGSPAN_ASSIGN_OR_RETURN(auto gate_up,
                              loader.Matrix({{expert + "gate_proj.weight", columns_, pieces},
                                             {expert + "up_proj.weight", columns_, pieces}},
                                            hidden_));
    LONGSPAN_ASSIGN_OR_RETURN(
        auto down, loader.Matrix({{expert + "down_proj.weight", hidden_}}, {columns_, pieces}));
    gate_up_.push_back(gate_up.get());
    down_.push_back(down.get());
    weights_.push_back(std::move(gate_up));
    weights_.push_back(std::move(down));
  }
  return base::OkStatus();
}

void RoutedExperts::Forward(const Step& step, const tensor::ConstView& x,
                            const ExpertChoices& choices, const tensor::View& out) const {
  const int64_t rows = x.size(0);
  const int64_t per_row = choices.experts.size(1);
  const int64_t sorted = choices.pairs;
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View expert_begin = scratch.Take(DType::kI32, {count() + 1});
  const tensor::View source_rows = scratch.Take(DType::kI32, {rows * per_row});
  const tensor::View places = scratch.Take(DType::kI32, {rows, per_row});
  const tensor::View gate_up = scratch.Take(x.dtype(), {sorted, 2 * columns_});
  const tensor::View gated = scratch.Take(x.dtype(), {sorted, columns_});
  const tensor::View sorted_out = scratch.Take(x.dtype(), {sorted, hidden_});

  ops::Dispatch(step.context, step.ops.expert_order,
                {.expert_ids = choices.experts,
                 .expert_begin = expert_begin,
                 .source_rows = source_rows,
                 .sorted_places = places});
  ops::Dispatch(step.context, step.ops.grouped_linear,
                {.x = x,
                 .weights = gate_up_,
                 .expert_begin = expert_begin,
                 .source_rows = source_rows,
                 .out = gate_up});
  ops::Dispatch(step.context, step.ops.silu_mul, {.gate_up = gate_up, .out = gated});
  ops::Dispatch(step.context, step.ops.grouped_linear,
                {.x = gated,
                 .weights = down_,
                 .expert_begin = expert_begin,
                 .source_rows = {},
                 .out = sorted_out});
  ops::Dispatch(
      step.context, step.ops.expert_combine,
      {.x = sorted_out, .sorted_places = places, .expert_weights = choices.weights, .out = out});
}

int64_t RoutedExperts::ScratchBytes(int64_t rows, int64_t choices, DType compute) const {
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t pairs = rows * choices;
  const int64_t sorted = rows * std::min(choices, count()) * tensor::SizeOf(compute);
  return padded(4 * (count() + 1)) + 2 * padded(4 * pairs) + padded(2 * sorted * columns_) +
         padded(sorted * columns_) + padded(sorted * hidden_);
}

}  // namespace longspan::model
