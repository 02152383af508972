#include <vector>

#include <fmt/format.h>

#include "model/feed_forward.h"

namespace longspan::model {
namespace {

using tensor::DType;

class Moe : public FeedForward {
 public:
  base::Status Load(const spec::ModelSpec& model, const std::string& prefix, WeightLoader& loader) {
    spec_ = model.moe;
    hidden_ = model.hidden_size;
    LONGSPAN_ASSIGN_OR_RETURN(router_,
                              loader.Matrix({{prefix + "gate.weight", spec_.experts}}, hidden_));
    for (int e = 0; e < spec_.experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", prefix, e);
      LONGSPAN_ASSIGN_OR_RETURN(
          auto gate_up, loader.Matrix({{expert + "gate_proj.weight", spec_.intermediate_size},
                                       {expert + "up_proj.weight", spec_.intermediate_size}},
                                      hidden_));
      LONGSPAN_ASSIGN_OR_RETURN(auto down, loader.Matrix({{expert + "down_proj.weight", hidden_}},
                                                         spec_.intermediate_size));
      gate_up_.push_back(gate_up.get());
      down_.push_back(down.get());
      weights_.push_back(std::move(gate_up));
      weights_.push_back(std::move(down));
    }
    return base::OkStatus();
  }

  void Forward(const Step& step, const tensor::ConstView& x,
               const tensor::View& out) const override {
    const int64_t rows = x.size(0);
    const int64_t choices = spec_.experts_per_token;
    const int64_t pairs = rows * choices;
    tensor::Workspace::Scope scratch(step.context.workspace);
    const tensor::View logits = scratch.Take(DType::kF32, {rows, spec_.experts});
    const tensor::View ids = scratch.Take(DType::kI32, {rows, choices});
    const tensor::View weights = scratch.Take(DType::kF32, {rows, choices});
    const tensor::View expert_begin = scratch.Take(DType::kI32, {spec_.experts + 1});
    const tensor::View source_rows = scratch.Take(DType::kI32, {pairs});
    const tensor::View places = scratch.Take(DType::kI32, {rows, choices});
    const tensor::View gate_up =
        scratch.Take(x.dtype(), {pairs, int64_t{2} * spec_.intermediate_size});
    const tensor::View gated = scratch.Take(x.dtype(), {pairs, spec_.intermediate_size});
    const tensor::View sorted_out = scratch.Take(x.dtype(), {pairs, hidden_});

    ops::Dispatch(step.context, step.ops.linear,
                  {.x = x, .weight = router_.get(), .bias = {}, .out = logits});
    ops::Dispatch(step.context, step.ops.router,
                  {.logits = logits,
                   .normalize_weights = spec_.normalize_weights,
                   .expert_ids = ids,
                   .expert_weights = weights});
    ops::Dispatch(step.context, step.ops.expert_order,
                  {.expert_ids = ids,
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
        {.x = sorted_out, .sorted_places = places, .expert_weights = weights, .out = out});
  }

  int64_t ScratchBytes(int64_t rows, DType compute) const override {
    const auto padded = tensor::Workspace::PaddedBytes;
    const int64_t pairs = rows * spec_.experts_per_token;
    const int64_t element = tensor::SizeOf(compute);
    return padded(4 * rows * spec_.experts) + 4 * padded(4 * pairs) +
           padded(int64_t{4} * (spec_.experts + 1)) +
           padded(2 * pairs * spec_.intermediate_size * element) +
           padded(pairs * spec_.intermediate_size * element) + padded(pairs * hidden_ * element);
  }

 private:
  spec::MoeSpec spec_;
  int64_t hidden_ = 0;
  std::unique_ptr<ops::PackedWeight> router_;
  std::vector<std::unique_ptr<ops::PackedWeight>>
      weights_;  // owns what the two lists below point to
  std::vector<const ops::PackedWeight*> gate_up_;
  std::vector<const ops::PackedWeight*> down_;
};

}  // namespace

base::Result<std::unique_ptr<FeedForward>> LoadMoe(const spec::ModelSpec& model,
                                                   const std::string& prefix,
                                                   WeightLoader& loader) {
  auto moe = std::make_unique<Moe>();
  LONGSPAN_RETURN_IF_ERROR(moe->Load(model, prefix, loader));
  return std::unique_ptr<FeedForward>(std::move(moe));
}

}  // namespace longspan::model
