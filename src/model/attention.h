// How a layer attends; grouped-query or latent.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/step.h"
#include "model/weight_loader.h"
#include "spec/model.h"

namespace longspan::model {

// Immutable after loading.
class Attention {
 public:
  virtual ~Attention() = default;
  // x and out [rows, hidden] in the compute type; writes what the new tokens keep to the cache
  // first. Of several tensor-parallel ranks each has its heads' part of a sum.
  virtual void Forward(const Step& step, const tensor::ConstView& x, const LayerCache& cache,
                       const tensor::View& out) const = 0;
  // Workspace that Forward takes, without what its ops take.
  virtual int64_t ScratchBytes(const StepBounds& bounds) const = 0;
};

// Grouped-query attention (Ainslie et al. 2023) with rotary positions, as Llama and Qwen have it.
// `prefix` is the block's scope in the checkpoint: "model.layers.3.self_attn.".
base::Result<std::unique_ptr<Attention>> LoadGroupedAttention(const spec::ModelSpec& model,
                                                              const std::string& prefix,
                                                              WeightLoader& loader);

// Multi-head latent attention, with or without an indexer, as DeepSeek V3 has it. In its absorbed
// form queries are taken into the space of the latents and the weighted latents out of it, head by
// head, so that the cache is read as it is; in its expanded form every head makes keys and values
// from the latents (model/latent_form.h says when).
base::Result<std::unique_ptr<Attention>> LoadLatentAttention(const spec::ModelSpec& model,
                                                             const std::string& prefix,
                                                             WeightLoader& loader);

}  // namespace longspan::model
