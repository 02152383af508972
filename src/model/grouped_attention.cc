#include <cmath>

#include "kv/kv_layout.h"
#include "model/attend_across_ranks.h"
#include "model/attention.h"
#include "model/cache_writes.h"

namespace longspan::model {
namespace {

class GroupedAttention : public Attention {
 public:
  explicit GroupedAttention(const spec::ModelSpec& model)
      : spec_(model.attention), epsilon_(model.norm_epsilon) {}

  base::Status Load(const std::string& prefix, int64_t hidden, WeightLoader& loader);
  void Forward(const Step& step, const tensor::ConstView& x, const LayerCache& cache,
               const tensor::View& out) const override;
  int64_t ScratchBytes(const StepBounds& bounds) const override;

 private:
  // The columns of `projected` from `begin` on that the weight makes.
  void Project(const Step& step, const tensor::ConstView& x, const ops::PackedWeight& weight,
               int64_t begin, const tensor::View& projected) const;
  void NormAndRotate(const Step& step, const tensor::View& heads, const tensor::Tensor& norm) const;

  int64_t query_size() const { return int64_t{spec_.heads} * spec_.head_dim; }
  int64_t kv_size() const { return int64_t{spec_.kv_heads} * spec_.head_dim; }

  spec::AttentionSpec spec_;
  double epsilon_;
  std::unique_ptr<ops::PackedWeight> kept_;   // keys, values; queries too, where they do not wait
  std::unique_ptr<ops::PackedWeight> query_;  // or null: in the first one
  std::unique_ptr<ops::PackedWeight> output_;
  tensor::Tensor bias_;  // of keys, values, queries
  tensor::Tensor output_bias_;
  tensor::Tensor query_norm_;
  tensor::Tensor key_norm_;
};

base::Status GroupedAttention::Load(const std::string& prefix, int64_t hidden,
                                    WeightLoader& loader) {
  const int ranks = loader.ranks();
  const int kv_pieces = ranks / spec_.kv_sharers;
  const NamedMatrix query = {prefix + "q_proj.weight", query_size(), ranks};
  std::vector<NamedMatrix> first = {{prefix + "k_proj.weight", kv_size(), kv_pieces},
                                    {prefix + "v_proj.weight", kv_size(), kv_pieces}};
  if (loader.kept_first()) {
    LONGSPAN_ASSIGN_OR_RETURN(query_, loader.Matrix({query}, hidden));
  } else {
    first.push_back(query);
  }
  LONGSPAN_ASSIGN_OR_RETURN(kept_, loader.Matrix(first, hidden));
  LONGSPAN_ASSIGN_OR_RETURN(
      output_, loader.Matrix({{prefix + "o_proj.weight", hidden}}, {query_size(), ranks}));
  if (spec_.qkv_bias) {
    LONGSPAN_ASSIGN_OR_RETURN(bias_,
                              loader.Vector({{prefix + "k_proj.bias", kv_size(), kv_pieces},
                                             {prefix + "v_proj.bias", kv_size(), kv_pieces},
                                             {prefix + "q_proj.bias", query_size(), ranks}}));
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

void GroupedAttention::Project(const Step& step, const tensor::ConstView& x,
                               const ops::PackedWeight& weight, int64_t begin,
                               const tensor::View& projected) const {
  const tensor::ConstView bias = bias_.view();
  ops::Dispatch(step.context, step.ops.linear,
                {.x = x,
                 .weight = &weight,
                 .bias = bias.empty() ? bias : bias.Columns(begin, weight.rows()),
                 .out = projected.Columns(begin, weight.rows())});
}

void GroupedAttention::NormAndRotate(const Step& step, const tensor::View& heads,
                                     const tensor::Tensor& norm) const {
  if (spec_.qk_norm)
    ops::Dispatch(step.context, step.ops.rms_norm,
                  {.x = heads, .weight = norm.view(), .epsilon = epsilon_, .out = heads});
  ops::Dispatch(
      step.context, step.ops.rope,
      {.x = heads, .cosines = step.cosines, .sines = step.sines, .pairs = spec_.rope.pairs});
}

void GroupedAttention::Forward(const Step& step, const tensor::ConstView& x,
                               const LayerCache& cache, const tensor::View& out) const {
  const int64_t rows = x.size(0);
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View projected = scratch.Take(x.dtype(), {rows, 2 * kv_size() + query_size()});
  const tensor::View keys =
      projected.Columns(0, kv_size()).SplitColumns(spec_.kv_heads, spec_.head_dim);
  const tensor::View values =
      projected.Columns(kv_size(), kv_size()).SplitColumns(spec_.kv_heads, spec_.head_dim);
  const tensor::View queries =
      projected.Columns(2 * kv_size(), query_size()).SplitColumns(spec_.heads, spec_.head_dim);

  CacheWrites writes(step, cache, scratch);
  Project(step, x, *kept_, 0, projected);
  NormAndRotate(step, keys, key_norm_);
  writes.Start({{kv::kKeyPlane, keys}, {kv::kValuePlane, values}});
  if (query_) Project(step, x, *query_, 2 * kv_size(), projected);
  NormAndRotate(step, queries, query_norm_);
  writes.Finish();

  const tensor::View heads = scratch.Take(x.dtype(), {rows, query_size()});
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  AttendAcrossRanks(step, {queries}, heads.SplitColumns(spec_.heads, spec_.head_dim),
                    [&](const auto& all, const auto& tables, const auto& part, const auto& sums) {
                      ops::Dispatch(step.context, step.ops.attention,
                                    {.queries = all[0],
                                     .key_cache = cache.planes[kv::kKeyPlane],
                                     .value_cache = cache.planes[kv::kValuePlane],
                                     .tables = tables,
                                     .scale = scale,
                                     .out = part,
                                     .exp_sums = sums});
                    });
  ops::Dispatch(step.context, step.ops.linear,
                {.x = heads, .weight = output_.get(), .bias = output_bias_.view(), .out = out});
}

int64_t GroupedAttention::ScratchBytes(const StepBounds& bounds) const {
  const int64_t element = bounds.rows * tensor::SizeOf(bounds.compute);
  return tensor::Workspace::PaddedBytes(element * (2 * kv_size() + query_size())) +
         tensor::Workspace::PaddedBytes(element * query_size()) +
         CacheWrites::ScratchBytes(bounds, 2 * kv_size()) +
         DividedAttentionBytes(bounds, query_size(), query_size(), spec_.heads);
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
