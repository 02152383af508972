#include <cmath>

#include "kv/kv_layout.h"
#include "model/attention.h"

namespace longspan::model {
namespace {

class GroupedAttention : public Attention {
 public:
  explicit GroupedAttention(const spec::ModelSpec& model)
      : spec_(model.attention), epsilon_(model.norm_epsilon) {}

  base::Status Load(const std::string& prefix, int64_t hidden, WeightLoader& loader);
  void Forward(const Step& step, const tensor::ConstView& x, const LayerCache& cache,
               const tensor::View& out) const override;
  int64_t ScratchBytes(int64_t rows, tensor::DType compute) const override;

 private:
  spec::AttentionSpec spec_;
  double epsilon_;
  std::unique_ptr<ops::PackedWeight> qkv_;
  std::unique_ptr<ops::PackedWeight> output_;
  tensor::Tensor qkv_bias_;
  tensor::Tensor output_bias_;
  tensor::Tensor query_norm_;
  tensor::Tensor key_norm_;
};

base::Status GroupedAttention::Load(const std::string& prefix, int64_t hidden,
                                    WeightLoader& loader) {
  const int64_t query_size = int64_t{spec_.heads} * spec_.head_dim;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_dim;
  const int ranks = loader.ranks();
  const int kv_pieces = ranks / spec_.kv_sharers;
  LONGSPAN_ASSIGN_OR_RETURN(qkv_, loader.Matrix({{prefix + "q_proj.weight", query_size, ranks},
                                                 {prefix + "k_proj.weight", kv_size, kv_pieces},
                                                 {prefix + "v_proj.weight", kv_size, kv_pieces}},
                                                hidden));
  LONGSPAN_ASSIGN_OR_RETURN(
      output_, loader.Matrix({{prefix + "o_proj.weight", hidden}}, {query_size, ranks}));
  if (spec_.qkv_bias) {
    LONGSPAN_ASSIGN_OR_RETURN(qkv_bias_,
                              loader.Vector({{prefix + "q_proj.bias", query_size, ranks},
                                             {prefix + "k_proj.bias", kv_size, kv_pieces},
                                             {prefix + "v_proj.bias", kv_size, kv_pieces}}));
  }
  if (spec_.output_bias) {
    LONGSPAN_ASSIGN_OR_RETURN(output_bias_, loader.SummedBias({prefix + "o_proj.bias", hidden}));
  }
  if (spec_.qk_norm) {
    LONGSPAN_ASSIGN_OR_RETURN(query_norm_,
                              loader.Vector({{prefix + "q_norm.weight", spec_.head_dim}}));
    LONGSPAN_ASSIGN_OR_RETURN(key_norm_,
                              loader.Vector({{prefix + "k_norm.weight", spec_.head_dim}}));
  }
  return base::OkStatus();
}

void GroupedAttention::Forward(const Step& step, const tensor::ConstView& x,
                               const LayerCache& cache, const tensor::View& out) const {
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
                {.x = keys, .slots = step.tables.slots, .cache = cache.planes[kv::kKeyPlane]});
  ops::Dispatch(step.context, step.ops.cache_write,
                {.x = values, .slots = step.tables.slots, .cache = cache.planes[kv::kValuePlane]});

  const tensor::View heads = scratch.Take(x.dtype(), {rows, query_size});
  ops::Dispatch(step.context, step.ops.attention,
                {.queries = queries,
                 .key_cache = cache.planes[kv::kKeyPlane],
                 .value_cache = cache.planes[kv::kValuePlane],
                 .tables = step.tables,
                 .scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim)),
                 .out = heads.SplitColumns(spec_.heads, spec_.head_dim)});
  ops::Dispatch(step.context, step.ops.linear,
                {.x = heads, .weight = output_.get(), .bias = output_bias_.view(), .out = out});
}

int64_t GroupedAttention::ScratchBytes(int64_t rows, tensor::DType compute) const {
  const int64_t element = rows * tensor::SizeOf(compute);
  const int64_t query_size = int64_t{spec_.heads} * spec_.head_dim;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_dim;
  return tensor::Workspace::PaddedBytes(element * (query_size + 2 * kv_size)) +
         tensor::Workspace::PaddedBytes(element * query_size);
}

}  // namespace

base::Result<std::unique_ptr<Attention>> LoadGroupedAttention(const spec::ModelSpec& model,
                                                              const std::string& prefix,
                                                              WeightLoader& loader) {
  auto block = std::make_unique<GroupedAttention>(model);
  LONGSPAN_RETURN_IF_ERROR(block->Load(prefix, model.hidden_size, loader));
  return std::unique_ptr<Attention>(std::move(block));
}

}  // namespace longspan::model
