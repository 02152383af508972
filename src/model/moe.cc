#include <algorithm>

#include "model/expert_exchange.h"
#include "model/feed_forward.h"
#include "model/routed_experts.h"

namespace longspan::model {
namespace {

using tensor::DType;

class Moe : public FeedForward {
 public:
  base::Status Load(const spec::ModelSpec& model, const std::string& prefix, WeightLoader& loader) {
    spec_ = model.moe;
    exchange_ = {.share = loader.experts(),
                 .experts = spec_.experts,
                 .choices = spec_.experts_per_token,
                 .hidden = model.hidden_size};
    LONGSPAN_ASSIGN_OR_RETURN(
        router_, loader.Matrix({{prefix + "gate.weight", spec_.experts}}, model.hidden_size));
    LONGSPAN_RETURN_IF_ERROR(experts_.Load(model, prefix, loader));
    if (spec_.correction_bias) {
      LONGSPAN_ASSIGN_OR_RETURN(
          bias_, loader.Vector({{prefix + "gate.e_score_correction_bias", spec_.experts}}));
    }
    if (spec_.shared_experts > 0) {
      const int64_t size = int64_t{spec_.shared_experts} * spec_.intermediate_size;
      LONGSPAN_ASSIGN_OR_RETURN(
          shared_, LoadMlp({model.hidden_size, size}, prefix + "shared_experts.", loader));
    }
    return base::OkStatus();
  }

  void Forward(const Step& step, const tensor::ConstView& x,
               const tensor::View& out) const override {
    if (exchange_.share.size > 1)
      ForwardDivided(step, x, out);
    else
      ForwardWhole(step, x, out);
  }

  int64_t ScratchBytes(int64_t rows, DType compute) const override {
    const int64_t choices = spec_.experts_per_token;
    const int64_t router = RouterScratchBytes(rows);
    const int64_t shared_out =
        shared_ == nullptr
            ? 0
            : tensor::Workspace::PaddedBytes(rows * exchange_.hidden * tensor::SizeOf(compute));
    const int64_t shared = shared_ == nullptr ? 0 : shared_->ScratchBytes(rows, compute);
    if (exchange_.share.size == 1)
      return std::max(router + experts_.ScratchBytes(rows, choices, compute), shared_out + shared);
    const int64_t routed =
        experts_.ScratchBytes(ExpertExchange::MostRows(exchange_, rows), choices, compute);
    return shared_out + ExpertExchange::ScratchBytes(exchange_, rows, compute) + router +
           std::max(routed, shared);
  }

 private:
  // All experts are here.
  void ForwardWhole(const Step& step, const tensor::ConstView& x, const tensor::View& out) const {
    {
      tensor::Workspace::Scope scratch(step.context.workspace);
      experts_.Forward(step, x, Route(step, x, scratch), out);
    }
    if (shared_ == nullptr) return;
    tensor::Workspace::Scope scratch(step.context.workspace);
    const tensor::View shared_out = scratch.Take(x.dtype(), {x.size(0), exchange_.hidden});
    shared_->Forward(step, x, shared_out);
    ops::Dispatch(step.context, step.ops.add, {.x = out, .y = shared_out});
  }

  // Rows go to the ranks that have their experts; meanwhile this one computes its part of the
  // shared experts, of all rows.
  void ForwardDivided(const Step& step, const tensor::ConstView& x, const tensor::View& out) const {
    tensor::Workspace::Scope scratch(step.context.workspace);
    tensor::View shared_out;
    if (shared_ != nullptr) shared_out = scratch.Take(x.dtype(), {x.size(0), exchange_.hidden});
    ExpertExchange exchange(step, exchange_, x);
    exchange.Send(Route(step, exchange.own_rows(), scratch));
    if (shared_ != nullptr) shared_->Forward(step, x, shared_out);
    exchange.Receive();
    experts_.Forward(step, exchange.rows(), exchange.choices(), exchange.results());
    exchange.AddUp(out);
    if (shared_ != nullptr) ops::Dispatch(step.context, step.ops.add, {.x = out, .y = shared_out});
  }

  ExpertChoices Route(const Step& step, const tensor::ConstView& x,
                      tensor::Workspace::Scope& scratch) const {
    const int64_t rows = x.size(0);
    const int64_t choices = spec_.experts_per_token;
    const tensor::View logits = scratch.Take(DType::kF32, {rows, spec_.experts});
    const tensor::View ids = scratch.Take(DType::kI32, {rows, choices});
    const tensor::View weights = scratch.Take(DType::kF32, {rows, choices});
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
    return {.experts = ids, .weights = weights, .pairs = rows * choices};
  }

  int64_t RouterScratchBytes(int64_t rows) const {
    const auto padded = tensor::Workspace::PaddedBytes;
    return padded(4 * rows * spec_.experts) + 2 * padded(4 * rows * spec_.experts_per_token);
  }

  spec::MoeSpec spec_;
  ExpertExchange::Shape exchange_;
  std::unique_ptr<ops::PackedWeight> router_;
  tensor::Tensor bias_;
  RoutedExperts experts_;
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
