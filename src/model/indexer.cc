#include "model/indexer.h"

#include <algorithm>
#include <cmath>

#include "kv/kv_layout.h"
#include "model/select_across_ranks.h"

namespace longspan::model {
namespace {

// Fixed, whatever the model's other norms have.
constexpr double kKeyNormEpsilon = 1e-6;

}  // namespace

base::Result<std::unique_ptr<Indexer>> Indexer::Load(const spec::ModelSpec& model,
                                                     const std::string& prefix,
                                                     WeightLoader& loader) {
  const spec::IndexerSpec& spec = *model.indexer;
  std::unique_ptr<Indexer> indexer(new Indexer(spec));
  const int64_t hidden = model.hidden_size;
  LONGSPAN_ASSIGN_OR_RETURN(
      indexer->query_,
      loader.Matrix({{prefix + "wq_b.weight", int64_t{spec.heads} * spec.head_dim}},
                    model.latent_attention->query_rank));
  LONGSPAN_ASSIGN_OR_RETURN(indexer->key_,
                            loader.Matrix({{prefix + "wk.weight", spec.head_dim}}, hidden));
  LONGSPAN_ASSIGN_OR_RETURN(indexer->head_weights_,
                            loader.Matrix({{prefix + "weights_proj.weight", spec.heads}}, hidden));
  LONGSPAN_ASSIGN_OR_RETURN(indexer->key_norm_weight_,
                            loader.Vector({{prefix + "k_norm.weight", spec.head_dim}}));
  LONGSPAN_ASSIGN_OR_RETURN(indexer->key_norm_bias_,
                            loader.Vector({{prefix + "k_norm.bias", spec.head_dim}}));
  return indexer;
}

void Indexer::Rotate(const Step& step, const tensor::View& heads) const {
  ops::Dispatch(step.context, step.ops.rope,
                {.x = heads.Columns(0, spec_.rope_dim),
                 .cosines = step.cosines,
                 .sines = step.sines,
                 .pairs = spec::RopePairs::kHalfSplit});
}

void Indexer::StartWrites(const Step& step, const tensor::ConstView& x, CacheWrites& writes) const {
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View keys = scratch.Take(x.dtype(), {x.size(0), spec_.head_dim});
  ops::Dispatch(step.context, step.ops.linear,
                {.x = x, .weight = key_.get(), .bias = {}, .out = keys});
  ops::Dispatch(step.context, step.ops.layer_norm,
                {.x = keys,
                 .weight = key_norm_weight_.view(),
                 .bias = key_norm_bias_.view(),
                 .epsilon = kKeyNormEpsilon,
                 .out = keys});
  const tensor::View heads = keys.SplitColumns(1, spec_.head_dim);
  Rotate(step, heads);
  writes.Start({{kv::kIndexKeyPlane, heads}});
}

int64_t Indexer::ListedRows(const Step& step) const {
  if (!step.gathered.sharded) return step.tables.rows;
  // The longest sequence of the whole step: all ranks choose alike.
  return step.tables.max_kv_length <= spec_.top_k ? 0 : step.gathered.tables.rows;
}

bool Indexer::Select(const Step& step, const tensor::ConstView& x,
                     const tensor::ConstView& query_latent, const tensor::ConstView& cache,
                     const tensor::View& selected) const {
  const int64_t rows = x.size(0);
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View queries =
      scratch.Take(x.dtype(), {rows, int64_t{spec_.heads} * spec_.head_dim});
  const tensor::View heads = queries.SplitColumns(spec_.heads, spec_.head_dim);
  const tensor::View head_weights = scratch.Take(tensor::DType::kF32, {rows, spec_.heads});
  ops::Dispatch(step.context, step.ops.linear,
                {.x = query_latent, .weight = query_.get(), .bias = {}, .out = queries});
  Rotate(step, heads);
  ops::Dispatch(step.context, step.ops.linear,
                {.x = x, .weight = head_weights_.get(), .bias = {}, .out = head_weights});
  // The heads' weights are scaled by heads^-1/2 too; a factor of all scores chooses nothing.
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  if (step.gathered.sharded)
    return SelectAcrossRanks(step, {heads, head_weights, scale}, cache, selected);
  ops::Dispatch(step.context, step.ops.index_select,
                {.queries = heads,
                 .head_weights = head_weights,
                 .index_cache = cache,
                 .tables = step.tables,
                 .scale = scale,
                 .selected = selected});
  return true;
}

int64_t Indexer::ListBytes(const StepBounds& bounds) const {
  const int64_t rows = bounds.sharing_ranks > 0 ? bounds.gathered_rows : bounds.rows;
  return tensor::Workspace::PaddedBytes(rows * spec_.top_k * tensor::SizeOf(tensor::DType::kI32));
}

int64_t Indexer::ScratchBytes(const StepBounds& bounds) const {
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t rows = bounds.rows;
  const int64_t element = tensor::SizeOf(bounds.compute);
  const int64_t keys = padded(rows * spec_.head_dim * element);
  int64_t queries =
      padded(rows * spec_.heads * spec_.head_dim * element) + padded(rows * spec_.heads * 4);
  if (bounds.sharing_ranks > 0)
    queries += SelectAcrossRanksBytes(bounds, spec_.heads, spec_.head_dim, spec_.top_k);
  return std::max(keys, queries);
}

}  // namespace longspan::model
