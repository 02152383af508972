// The part of a model that one stage owns.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "model/decoder_layer.h"
#include "model/rope_frequencies.h"
#include "model/step.h"
#include "model/weight_loader.h"
#include "ops/op_table.h"
#include "plan/expert_share.h"
#include "plan/layer_split.h"
#include "plan/tensor_share.h"
#include "spec/model.h"

namespace longspan::model {

// What a stage owns: a list of layer ranges (more than one in looped pipelines), the embedding if
// it is the first stage, the final norm and the head if it is the last; of these one rank's share.
struct StagePart {
  std::vector<plan::LayerRange> ranges;
  bool embedding = true;
  bool head = true;
  plan::TensorShare share;
  plan::ExpertShare experts;
  bool shares_cache = false;  // with context-parallel ranks, each of which has some pages
};

// The ops that a part needs, for refusing a backend that lacks one.
std::vector<ops::OpKind> NeededOps(const spec::ModelSpec& model, const StagePart& part);

// Weights and the order of computation. Immutable after Load; holds no state of any sequence.
class StageModel {
 public:
  // Called with the share of the tensors' layers loaded so far, in [0, 1].
  using Progress = std::function<void(double share)>;

  // Reads only what the part needs; `model` is the rank's share of it (plan::ShareOf), as the
  // loader knows too. The first error names the tensor.
  static base::Result<std::unique_ptr<StageModel>> Load(const spec::ModelSpec& model,
                                                        const StagePart& part, WeightLoader& loader,
                                                        const Progress& progress = {});

  const StagePart& part() const { return part_; }
  // f32 [rotated dimensions / 2], for the rope tables of a step.
  tensor::ConstView inverse_frequencies() const { return inverse_frequencies_.view(); }
  float rope_amplitude() const { return rope_amplitude_; }

  // The row of this rank's embedding that belongs to a token.
  int32_t EmbeddingRow(int32_t token) const;
  // The tokens' embedding rows, i32 [rows] -> residual [rows, hidden].
  void Embed(const Step& step, const tensor::ConstView& embedding_rows,
             const tensor::View& residual) const;

  // Called after every layer with its number in the whole model.
  using LayerTap = std::function<void(int layer, const tensor::ConstView& residual)>;

  // The layers of ranges[range], in place. caches[i] belongs to the i-th layer of the range. Ends
  // after a layer in which something went wrong between ranks.
  void Forward(const Step& step, size_t range, std::span<const LayerCache> caches,
               const tensor::View& residual, const LayerTap& tap = {}) const;

  // rows [n, hidden] of the residual stream -> the same after the final norm.
  void FinalNorm(const Step& step, const tensor::ConstView& rows, const tensor::View& out) const;
  // normed rows [n, hidden] -> logits f32 [n, vocab] of the rank's share of the vocabulary.
  void Logits(const Step& step, const tensor::ConstView& normed, const tensor::View& logits) const;

  // Workspace that the largest of the calls above takes, without what single ops take.
  int64_t ScratchBytes(const StepBounds& bounds) const;

 private:
  StageModel(const spec::ModelSpec& model, StagePart part)
      : part_(std::move(part)),
        vocab_size_(model.vocab_size),
        epsilon_(model.norm_epsilon),
        rope_amplitude_(RopeAmplitude(model.attention.rope)) {}

  StagePart part_;
  int32_t vocab_size_;  // of the share
  double epsilon_;
  float rope_amplitude_;
  tensor::Tensor embedding_;
  tensor::Tensor inverse_frequencies_;
  std::vector<std::vector<std::unique_ptr<DecoderLayer>>> layers_;  // by range
  tensor::Tensor final_norm_;
  std::unique_ptr<ops::PackedWeight> head_;
};

}  // namespace longspan::model
