#include "model/stage_model.h"

#include <algorithm>

#include "checkpoint/weight_names.h"

namespace longspan::model {
namespace {

bool OwnsMoe(const spec::ModelSpec& model, const StagePart& part) {
  for (const plan::LayerRange& range : part.ranges)
    for (int layer = range.begin; layer < range.end; ++layer)
      if (model.feed_forward[layer] == spec::FeedForwardKind::kMoe) return true;
  return false;
}

}  // namespace

std::vector<ops::OpKind> NeededOps(const spec::ModelSpec& model, const StagePart& part) {
  using enum ops::OpKind;
  std::vector<ops::OpKind> needed = {kRmsNorm, kAdd,        kLinear, kRopeTable,
                                     kRope,    kCacheWrite, kSiluMul};
  if (model.latent_attention)
    needed.insert(needed.end(), {kHeadLinear, kLatentAttention, kExpandedLatentAttention});
  else
    needed.push_back(kAttention);
  if (model.indexer) needed.insert(needed.end(), {kLayerNorm, kIndexSelect});
  if (part.shares_cache) needed.push_back(kMergeAttention);
  if (part.shares_cache && model.indexer)
    needed.insert(needed.end(), {kIndexCandidates, kIndexMerge, kIndexTake});
  if (part.embedding) needed.push_back(kEmbedding);
  if (OwnsMoe(model, part))
    needed.insert(needed.end(), {kRouter, kExpertOrder, kGroupedLinear, kExpertCombine});
  if (part.head) needed.insert(needed.end(), {kGatherRows, kSample, kTokenLogprob, kTopLogprobs});
  if (OwnsMoe(model, part) && part.experts.size > 1) needed.push_back(kGatherRows);
  if (part.head && part.share.size > 1) needed.push_back(kTopLogits);
  return needed;
}

base::Result<std::unique_ptr<StageModel>> StageModel::Load(const spec::ModelSpec& model,
                                                           const StagePart& part,
                                                           WeightLoader& loader,
                                                           const Progress& progress) {
  std::unique_ptr<StageModel> stage(new StageModel(model, part));
  const std::vector<float> frequencies =
      RopeInverseFrequencies(model.attention.rope, RotatedDimensions(model));
  LONGSPAN_ASSIGN_OR_RETURN(stage->inverse_frequencies_, loader.Constant(frequencies));
  const NamedMatrix embedding = {std::string(checkpoint::kEmbeddingName), model.vocab_size,
                                 loader.ranks()};
  const NamedMatrix head = {
      std::string(model.tied_embeddings ? checkpoint::kEmbeddingName : checkpoint::kHeadName),
      model.vocab_size, loader.ranks()};
  bool is_shared = model.tied_embeddings && part.embedding && part.head && loader.ranks() == 1;
  if (is_shared) {
    LONGSPAN_ASSIGN_OR_RETURN(is_shared, loader.IsPackedExactly(head, model.hidden_size));
  }
  if (is_shared) {
    LONGSPAN_ASSIGN_OR_RETURN(stage->head_, loader.Matrix({head}, model.hidden_size));
    is_shared = stage->head_->is_table();
  }
  if (part.embedding && !is_shared) {
    LONGSPAN_ASSIGN_OR_RETURN(stage->embedding_, loader.Table(embedding, model.hidden_size));
  }
  int total = 0;
  for (const plan::LayerRange& range : part.ranges) total += range.size();
  int loaded = 0;
  for (const plan::LayerRange& range : part.ranges) {
    auto& layers = stage->layers_.emplace_back();
    for (int layer = range.begin; layer < range.end; ++layer) {
      LONGSPAN_ASSIGN_OR_RETURN(auto decoder_layer, DecoderLayer::Load(model, layer, loader));
      layers.push_back(std::move(decoder_layer));
      if (progress) progress(static_cast<double>(++loaded) / total);
    }
  }
  if (part.head) {
    LONGSPAN_ASSIGN_OR_RETURN(
        stage->final_norm_,
        loader.Vector({{std::string(checkpoint::kFinalNormName), model.hidden_size}}));
    if (stage->head_ == nullptr) {
      LONGSPAN_ASSIGN_OR_RETURN(stage->head_, loader.Matrix({head}, model.hidden_size));
    }
  }
  return stage;
}

int32_t StageModel::EmbeddingRow(int32_t token) const {
  const int32_t row = token - part_.share.rank * vocab_size_;
  // Other ranks' tokens have the row of zeros behind the last one.
  return row >= 0 && row < vocab_size_ ? row : vocab_size_;
}

void StageModel::Embed(const Step& step, const tensor::ConstView& embedding_rows,
                       const tensor::View& residual) const {
  ops::Dispatch(step.context, step.ops.embedding,
                {.table = embedding_.view(),
                 .packed = head_.get(),
                 .tokens = embedding_rows,
                 .out = residual});
  step.ranks.SumOverTensorRanks(residual);
}

void StageModel::Forward(const Step& step, size_t range, std::span<const LayerCache> caches,
                         const tensor::View& residual, const LayerTap& tap) const {
  const auto& layers = layers_[range];
  LONGSPAN_CHECK(caches.size() == layers.size(), "{} caches for {} layers", caches.size(),
                 layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i]->Forward(step, caches[i], residual);
    if (!step.ranks.ok()) return;
    if (tap) tap(part_.ranges[range].begin + static_cast<int>(i), residual);
  }
}

void StageModel::FinalNorm(const Step& step, const tensor::ConstView& rows,
                           const tensor::View& out) const {
  ops::Dispatch(step.context, step.ops.rms_norm,
                {.x = rows, .weight = final_norm_.view(), .epsilon = epsilon_, .out = out});
}

void StageModel::Logits(const Step& step, const tensor::ConstView& normed,
                        const tensor::View& logits) const {
  ops::Dispatch(step.context, step.ops.linear,
                {.x = normed, .weight = head_.get(), .bias = {}, .out = logits});
}

int64_t StageModel::ScratchBytes(const StepBounds& bounds) const {
  int64_t bytes = 0;
  for (const auto& layers : layers_)
    for (const auto& layer : layers) bytes = std::max(bytes, layer->ScratchBytes(bounds));
  return bytes;
}

}  // namespace longspan::model
