// Grouped-query attention (Ainslie et al. 2023) with rotary positions, as Llama and Qwen have it.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/step.h"
#include "model/weight_loader.h"
#include "spec/model.h"

namespace longspan::model {

// Immutable after Load.
class Attention {
 public:
  // `prefix` is the block's scope in the checkpoint: "model.layers.3.self_attn.".
  static base::Result<std::unique_ptr<Attention>> Load(const spec::ModelSpec& model,
                                                       const std::string& prefix,
                                                       WeightLoader& loader);

  // x and out [rows, hidden] in the compute type; writes the new keys and values to the cache
  // first.
  void Forward(const Step& step, const tensor::ConstView& x, const LayerCache& cache,
               const tensor::View& out) const;

  // Workspace that Forward takes, without what its ops take.
  int64_t ScratchBytes(int64_t rows, tensor::DType compute) const;

 private:
  explicit Attention(const spec::ModelSpec& model)
      : spec_(model.attention), epsilon_(model.norm_epsilon) {}

  spec::AttentionSpec spec_;
  double epsilon_;
  std::unique_ptr<ops::PackedWeight> qkv_;
  std::unique_ptr<ops::PackedWeight> output_;
  tensor::Tensor qkv_bias_;
  tensor::Tensor output_bias_;
  tensor::Tensor query_norm_;
  tensor::Tensor key_norm_;
};

}  // namespace longspan::model
