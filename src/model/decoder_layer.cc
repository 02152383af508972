#include "model/decoder_layer.h"

#include <algorithm>

#include "checkpoint/weight_names.h"

namespace longspan::model {

base::Result<std::unique_ptr<DecoderLayer>> DecoderLayer::Load(const spec::ModelSpec& model,
                                                               int layer, WeightLoader& loader) {
  std::unique_ptr<DecoderLayer> loaded(new DecoderLayer(model));
  const std::string prefix = checkpoint::LayerName(layer, "");
  const int64_t hidden = model.hidden_size;
  LONGSPAN_ASSIGN_OR_RETURN(loaded->attention_norm_,
                            loader.Vector({{prefix + "input_layernorm.weight", hidden}}));
  LONGSPAN_ASSIGN_OR_RETURN(loaded->attention_,
                            (model.latent_attention ? LoadLatentAttention : LoadGroupedAttention)(
                                model, prefix + "self_attn.", loader));
  LONGSPAN_ASSIGN_OR_RETURN(loaded->feed_forward_norm_,
                            loader.Vector({{prefix + "post_attention_layernorm.weight", hidden}}));
  if (model.feed_forward[layer] == spec::FeedForwardKind::kMoe) {
    LONGSPAN_ASSIGN_OR_RETURN(loaded->feed_forward_, LoadMoe(model, prefix + "mlp.", loader));
  } else {
    LONGSPAN_ASSIGN_OR_RETURN(
        loaded->feed_forward_,
        LoadMlp({hidden, model.intermediate_size, model.mlp_bias}, prefix + "mlp.", loader));
  }
  return loaded;
}

void DecoderLayer::Forward(const Step& step, const LayerCache& cache,
                           const tensor::View& residual) const {
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View normed = scratch.Take(residual.dtype(), {residual.size(0), hidden_});
  const tensor::View block_out = scratch.Take(residual.dtype(), {residual.size(0), hidden_});

  ops::Dispatch(
      step.context, step.ops.rms_norm,
      {.x = residual, .weight = attention_norm_.view(), .epsilon = epsilon_, .out = normed});
  attention_->Forward(step, normed, cache, block_out);
  step.ranks.SumOverTensorRanks(block_out);
  if (!step.ranks.ok()) return;
  ops::Dispatch(step.context, step.ops.add, {.x = residual, .y = block_out});

  ops::Dispatch(
      step.context, step.ops.rms_norm,
      {.x = residual, .weight = feed_forward_norm_.view(), .epsilon = epsilon_, .out = normed});
  feed_forward_->Forward(step, normed, block_out);
  step.ranks.SumOverTensorRanks(block_out);
  ops::Dispatch(step.context, step.ops.add, {.x = residual, .y = block_out});
}

int64_t DecoderLayer::ScratchBytes(const StepBounds& bounds) const {
  return 2 * tensor::Workspace::PaddedBytes(bounds.rows * hidden_ *
                                            tensor::SizeOf(bounds.compute)) +
         std::max(attention_->ScratchBytes(bounds),
                  feed_forward_->ScratchBytes(bounds.rows, bounds.compute));
}

}  // namespace longspan::model
