#include "model/attention.h"

#include <cmath>

namespace longspan::model {

base::Result<std::unique_ptr<Attention>> Attention::Load(const spec::ModelSpec& model,
                                                         const std::string& prefix,
                                                         WeightLoader& loader) {
  std::unique_ptr<Attention> block(new Attention(model));
  const spec::AttentionSpec& spec = block->spec_;
  const int64_t query_size = int64_t{spec.heads} * spec.head_dim;
  const int64_t kv_size = int64_t{spec.kv_heads} * spec.head_dim;
  const int64_t hidden = model.hidden_size;
  LONGSPAN_ASSIGN_OR_RETURN(block->qkv_, loader.Matrix({{prefix + "q_proj.weight", query_size},
                                                        {prefix + "k_proj.weight", kv_size},
                                                        {prefix + "v_proj.weight", kv_size}},
                                                       hidden));
  LONGSPAN_ASSIGN_OR_RETURN(block->output_,
                            loader.Matrix({{prefix + "o_proj.weight", hidden}}, query_size));
  if (spec.qkv_bias) {
    LONGSPAN_ASSIGN_OR_RETURN(block->qkv_bias_, loader.Vector({{prefix + "q_proj.bias", query_size},
                                                               {prefix + "k_proj.bias", kv_size},
                                                               {prefix + "v_proj.bias", kv_size}}));
  }
  if (spec.output_bias) {
    LONGSPAN_ASSIGN_OR_RETURN(block->output_bias_,
                              loader.Vector({{prefix + "o_proj.bias", hidden}}));
  }
  if (spec.qk_norm) {
    LONGSPAN_ASSIGN_OR_RETURN(block->query_norm_,
                              loader.Vector({{prefix + "q_norm.weight", spec.head_dim}}));
    LONGSPAN_ASSIGN_OR_RETURN(block->key_norm_,
                              loader.Vector({{prefix + "k_norm.weight", spec.head_dim}}));
  }
  return block;
}

void Attention::Forward(const Step& step, const tensor::ConstView& x, const LayerCache& cache,
                        const tensor::View& out) const {
  const int64_t rows = x.size(0);
  const int64_t query_size = int64_t{spec_.heads} * spec_.head_dim;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_dim;
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View qkv = scratch.Take(x.dtype(), {rows, query_size + 2 * kv_size});
  ops::Dispatch(step.context, step.ops.linear,
                {.x = x, .weight = qkv_.get(), .bias = qkv_bias_.view(), .out = qkv});

  const tensor::View queries = qkv.Columns(0, query_size).SplitColumns(spec_.heads, spec_.head_dim);
  const tensor::View keys =
      qkv.Columns(query_size, kv_size).SplitColumns(spec_.kv_heads, spec_.head_dim);
  const tensor::View values =
      qkv.Columns(query_size + kv_size, kv_size).SplitColumns(spec_.kv_heads, spec_.head_dim);
  if (spec_.qk_norm) {
    ops::Dispatch(
        step.context, step.ops.rms_norm,
        {.x = queries, .weight = query_norm_.view(), .epsilon = epsilon_, .out = queries});
    ops::Dispatch(step.context, step.ops.rms_norm,
                  {.x = keys, .weight = key_norm_.view(), .epsilon = epsilon_, .out = keys});
  }
  for (const tensor::View& heads : {queries, keys}) {
    ops::Dispatch(
        step.context, step.ops.rope,
        {.x = heads, .cosines = step.cosines, .sines = step.sines, .pairs = spec_.rope.pairs});
  }
  ops::Dispatch(step.context, step.ops.cache_write,
                {.x = keys, .slots = step.tables.slots, .cache = cache.keys});
  ops::Dispatch(step.context, step.ops.cache_write,
                {.x = values, .slots = step.tables.slots, .cache = cache.values});

  const tensor::View heads = scratch.Take(x.dtype(), {rows, query_size});
  ops::Dispatch(step.context, step.ops.attention,
                {.queries = queries,
                 .key_cache = cache.keys,
                 .value_cache = cache.values,
                 .tables = step.tables,
                 .scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim)),
                 .out = heads.SplitColumns(spec_.heads, spec_.head_dim)});
  ops::Dispatch(step.context, step.ops.linear,
                {.x = heads, .weight = output_.get(), .bias = output_bias_.view(), .out = out});
}

int64_t Attention::ScratchBytes(int64_t rows, tensor::DType compute) const {
  const int64_t element = rows * tensor::SizeOf(compute);
  const int64_t query_size = int64_t{spec_.heads} * spec_.head_dim;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_dim;
  return tensor::Workspace::PaddedBytes(element * (query_size + 2 * kv_size)) +
         tensor::Workspace::PaddedBytes(element * query_size);
}

}  // namespace longspan::model
