#include <algorithm>
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
    const int ranks = loader.ranks();
    for (int e = 0; e < spec_.experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", prefix, e);
      LONGSPAN_ASSIGN_OR_RETURN(
          auto gate_up,
          loader.Matrix({{expert + "gate_proj.weight", spec_.intermediate_size, ranks},
                         {expert + "up_proj.weight", spec_.intermediate_size, ranks}},
                        hidden_));
      LONGSPAN_ASSIGN_OR_RETURN(auto down, loader.Matrix({{expert + "down_proj.weight", hidden_}},
                                                         {spec_.intermediate_size, ranks}));
      gate_up_.push_back(gate_up.get());
      down_.push_back(down.get());
      weights_.push_back(std::move(gate_up));
      weights_.push_back(std::move(down));
    }
    if (spec_.correction_bias) {
      LONGSPAN_ASSIGN_OR_RETURN(
          bias_, loader.Vector({{prefix + "gate.e_score_correction_bias", spec_.experts}}));
    }
    if (spec_.shared_experts > 0) {
      const int64_t size = int64_t{spec_.shared_experts} * spec_.intermediate_size;
      LONGSPAN_ASSIGN_OR_RETURN(shared_,
                                LoadMlp({hidden_, size}, prefix + "shared_experts.", loader));
    }
    return base::OkStatus();
  }

  void Forward(const Step& step, const tensor::ConstView& x,
               const tensor::View& out) const override {
    ForwardRouted(step, x, out);
    if (shared_ == nullptr) return;
    tensor::Workspace::Scope scratch(step.context.workspace);
    const tensor::View shared_out = scratch.Take(x.dtype(), {x.size(0), hidden_});
    shared_->Forward(step, x, shared_out);
    ops::Dispatch(step.context, step.ops.add, {.x = out, .y = shared_out});
  }

  int64_t ScratchBytes(int64_t rows, DType compute) const override {
    const int64_t shared =
        shared_ == nullptr
            ? 0
            : tensor::Workspace::PaddedBytes(rows * hidden_ * tensor::SizeOf(compute)) +
                  shared_->ScratchBytes(rows, compute);
    return std::max(RoutedScratchBytes(rows, compute), shared);
  }

 private:
  void ForwardRouted(const Step& step, const tensor::ConstView& x, const tensor::View& out) const {
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
                   .scoring = spec_.scoring,
                   .bias = bias_.view(),
                   .groups = spec_.groups,
                   .groups_kept = spec_.groups_kept,
                   .normalize_weights = spec_.normalize_weights,
                   .scale = static_cast<float>(spec_.scale),
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

  int64_t RoutedScratchBytes(int64_t rows, DType compute) const {
    const auto padded = tensor::Workspace::PaddedBytes;
    const int64_t pairs = rows * spec_.experts_per_token;
    const int64_t element = tensor::SizeOf(compute);
    return padded(4 * rows * spec_.experts) + 4 * padded(4 * pairs) +
           padded(int64_t{4} * (spec_.experts + 1)) +
           padded(2 * pairs * spec_.intermediate_size * element) +
           padded(pairs * spec_.intermediate_size * element) + padded(pairs * hidden_ * element);
  }

  spec::MoeSpec spec_;
  int64_t hidden_ = 0;
  std::unique_ptr<ops::PackedWeight> router_;
  tensor::Tensor bias_;
  std::vector<std::unique_ptr<ops::PackedWeight>>
      weights_;  // owns what the two lists below point to
  std::vector<const ops::PackedWeight*> gate_up_;
  std::vector<const ops::PackedWeight*> down_;
  std::unique_ptr<FeedForward> shared_;
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
