// One layer: attention and feed-forward, each on the normed residual stream and added back to it.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/attention.h"
#include "model/feed_forward.h"
#include "model/step.h"
#include "model/weight_loader.h"

namespace longspan::model {

// Immutable after Load.
class DecoderLayer {
 public:
  // `layer` is the layer's number in the whole model.
  static base::Result<std::unique_ptr<DecoderLayer>> Load(const spec::ModelSpec& model, int layer,
                                                          WeightLoader& loader);

  // residual [rows, hidden] in the compute type, in place.
  void Forward(const Step& step, const LayerCache& cache, const tensor::View& residual) const;

  int64_t ScratchBytes(const StepBounds& bounds) const;

 private:
  explicit DecoderLayer(const spec::ModelSpec& model)
      : epsilon_(model.norm_epsilon), hidden_(model.hidden_size) {}

  double epsilon_;
  int64_t hidden_;
  tensor::Tensor attention_norm_;
  tensor::Tensor feed_forward_norm_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<FeedForward> feed_forward_;
};

}  // namespace longspan::model
