#include "model/feed_forward.h"

namespace longspan::model {
namespace {

class Mlp : public FeedForward {
 public:
  base::Status Load(const MlpShape& shape, const std::string& prefix, WeightLoader& loader) {
    size_ = shape.intermediate_size;
    const int ranks = loader.ranks();
    LONGSPAN_ASSIGN_OR_RETURN(gate_up_, loader.Matrix({{prefix + "gate_proj.weight", size_, ranks},
                                                       {prefix + "up_proj.weight", size_, ranks}},
                                                      shape.hidden_size));
    LONGSPAN_ASSIGN_OR_RETURN(
        down_, loader.Matrix({{prefix + "down_proj.weight", shape.hidden_size}}, {size_, ranks}));
    if (shape.bias) {
      LONGSPAN_ASSIGN_OR_RETURN(gate_up_bias_,
                                loader.Vector({{prefix + "gate_proj.bias", size_, ranks},
                                               {prefix + "up_proj.bias", size_, ranks}}));
      LONGSPAN_ASSIGN_OR_RETURN(down_bias_,
                                loader.SummedBias({prefix + "down_proj.bias", shape.hidden_size}));
    }
    return base::OkStatus();
  }

  void Forward(const Step& step, const tensor::ConstView& x,
               const tensor::View& out) const override {
    tensor::Workspace::Scope scratch(step.context.workspace);
    const tensor::View gate_up = scratch.Take(x.dtype(), {x.size(0), 2 * size_});
    const tensor::View gated = gate_up.Columns(0, size_);
    ops::Dispatch(step.context, step.ops.linear,
                  {.x = x, .weight = gate_up_.get(), .bias = gate_up_bias_.view(), .out = gate_up});
    ops::Dispatch(step.context, step.ops.silu_mul, {.gate_up = gate_up, .out = gated});
    ops::Dispatch(step.context, step.ops.linear,
                  {.x = gated, .weight = down_.get(), .bias = down_bias_.view(), .out = out});
  }

  int64_t ScratchBytes(int64_t rows, tensor::DType compute) const override {
    return tensor::Workspace::PaddedBytes(rows * 2 * size_ * tensor::SizeOf(compute));
  }

 private:
  int64_t size_ = 0;
  std::unique_ptr<ops::PackedWeight> gate_up_;
  std::unique_ptr<ops::PackedWeight> down_;
  tensor::Tensor gate_up_bias_;
  tensor::Tensor down_bias_;
};

}  // namespace

base::Result<std::unique_ptr<FeedForward>> LoadMlp(const MlpShape& shape, const std::string& prefix,
                                                   WeightLoader& loader) {
  auto mlp = std::make_unique<Mlp>();
  LONGSPAN_RETURN_IF_ERROR(mlp->Load(shape, prefix, loader));
  return std::unique_ptr<FeedForward>(std::move(mlp));
}

}  // namespace longspan::model
