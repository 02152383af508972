#include <algorithm>
#include <cmath>
#include <vector>

#include "kv/kv_layout.h"
#include "model/attend_across_ranks.h"
#include "model/attention.h"
#include "model/cache_writes.h"
#include "model/indexer.h"
#include "model/latent_form.h"
#include "model/rope_frequencies.h"

namespace longspan::model {
namespace {

// Of the latents' norms; fixed, whatever the model's other norms have.
constexpr double kLatentNormEpsilon = 1e-6;

// One weight per head, and what HeadLinear takes.
struct HeadWeights {
  std::vector<std::unique_ptr<ops::PackedWeight>> owned;
  std::vector<const ops::PackedWeight*> list;

  void Own(std::unique_ptr<ops::PackedWeight> weight) {
    list.push_back(weight.get());
    owned.push_back(std::move(weight));
  }
};

class LatentAttention : public Attention {
 public:
  explicit LatentAttention(const spec::ModelSpec& model)
      : spec_(*model.latent_attention),
        pairs_(model.attention.rope.pairs),
        scale_(static_cast<float>(
            LatentScoreScale(model.attention.rope, spec_.nope_dim + spec_.rope_dim))) {}

  base::Status Load(const spec::ModelSpec& model, const std::string& prefix, WeightLoader& loader);
  void Forward(const Step& step, const tensor::ConstView& x, const LayerCache& cache,
               const tensor::View& out) const override;
  int64_t ScratchBytes(const StepBounds& bounds) const override;

 private:
  base::Status LoadHeads(const std::string& name, WeightLoader& loader);
  // The queries [rows, heads, nope + rope], rotated. `first` are the first columns of the input
  // product: the queries themselves, or their latent, which is normed in place.
  tensor::View Queries(const Step& step, const tensor::View& first, const tensor::View& out) const;
  // Norms and rotates in place.
  void StartWrites(const Step& step, const tensor::View& latent, const tensor::View& rope_key,
                   CacheWrites& writes) const;
  // `selected` as of ops::LatentAttentionArgs, of the rows of all ranks where these divide the
  // cache; values [rows, heads, value].
  void Absorbed(const Step& step, const tensor::ConstView& queries, const LayerCache& cache,
                const tensor::ConstView& selected, const tensor::View& values) const;
  void Expanded(const Step& step, const tensor::ConstView& queries, const LayerCache& cache,
                const tensor::View& values) const;

  int64_t query_size() const { return int64_t{spec_.heads} * (spec_.nope_dim + spec_.rope_dim); }
  // Columns of the input product: the latent and the rope key, then what queries are made from.
  int64_t kept_size() const { return int64_t{spec_.latent_rank} + spec_.rope_dim; }
  int64_t first_size() const { return spec_.query_rank > 0 ? spec_.query_rank : query_size(); }

  spec::LatentAttentionSpec spec_;
  spec::RopePairs pairs_;
  float scale_;
  std::unique_ptr<ops::PackedWeight> kept_;   // latent, rope key; what follows, if not apart
  std::unique_ptr<ops::PackedWeight> first_;  // queries or their latent; or null: in the first one
  std::unique_ptr<ops::PackedWeight> query_;  // from the queries' latent, where there is one
  tensor::Tensor query_norm_;                 // likewise
  tensor::Tensor latent_norm_;
  HeadWeights to_latent_;    // [rank, nope]: a query into the space of the latents
  HeadWeights keys_;         // [nope, rank]: the same matrices transposed; none where in one form
  HeadWeights from_latent_;  // [value, rank]
  std::unique_ptr<ops::PackedWeight> output_;
  std::unique_ptr<Indexer> indexer_;  // or null: dense
};

base::Status LatentAttention::Load(const spec::ModelSpec& model, const std::string& prefix,
                                   WeightLoader& loader) {
  const int64_t hidden = model.hidden_size;
  const bool low_rank = spec_.query_rank > 0;
  const int ranks = loader.ranks();
  const NamedMatrix first = low_rank ? NamedMatrix{prefix + "q_a_proj.weight", first_size()}
                                     : NamedMatrix{prefix + "q_proj.weight", first_size(), ranks};
  std::vector<NamedMatrix> kept = {{prefix + "kv_a_proj_with_mqa.weight", kept_size()}};
  if (loader.kept_first()) {
    LONGSPAN_ASSIGN_OR_RETURN(first_, loader.Matrix({first}, hidden));
  } else {
    kept.push_back(first);
  }
  LONGSPAN_ASSIGN_OR_RETURN(kept_, loader.Matrix(kept, hidden));
  if (low_rank) {
    LONGSPAN_ASSIGN_OR_RETURN(query_norm_,
                              loader.Vector({{prefix + "q_a_layernorm.weight", spec_.query_rank}}));
    LONGSPAN_ASSIGN_OR_RETURN(
        query_,
        loader.Matrix({{prefix + "q_b_proj.weight", query_size(), ranks}}, spec_.query_rank));
  }
  LONGSPAN_ASSIGN_OR_RETURN(latent_norm_,
                            loader.Vector({{prefix + "kv_a_layernorm.weight", spec_.latent_rank}}));
  LONGSPAN_RETURN_IF_ERROR(LoadHeads(prefix + "kv_b_proj.weight", loader));
  LONGSPAN_ASSIGN_OR_RETURN(output_,
                            loader.Matrix({{prefix + "o_proj.weight", hidden}},
                                          {int64_t{spec_.heads} * spec_.value_dim, ranks}));
  if (model.indexer) {
    LONGSPAN_ASSIGN_OR_RETURN(indexer_, Indexer::Load(model, prefix + "indexer.", loader));
  }
  return base::OkStatus();
}

// The stored matrix takes a latent to [key without rotation, value] of every head in turn.
base::Status LatentAttention::LoadHeads(const std::string& name, WeightLoader& loader) {
  // The kernels read pairs of a key's elements.
  const bool both_forms = !loader.one_form() && spec_.nope_dim % 2 == 0;
  const int64_t head_size = spec_.nope_dim + spec_.value_dim;
  std::vector<MatrixPart> parts;
  for (int64_t head = 0; head < spec_.heads; ++head) {
    parts.push_back({head * head_size + spec_.nope_dim, spec_.value_dim});
    parts.push_back({head * head_size, spec_.nope_dim, /*transposed=*/true});
    if (both_forms) parts.push_back({head * head_size, spec_.nope_dim});
  }
  LONGSPAN_ASSIGN_OR_RETURN(
      auto weights,
      loader.Parts({name, spec_.heads * head_size, loader.ranks()}, spec_.latent_rank, parts));
  for (auto weight = weights.begin(); weight != weights.end();) {
    from_latent_.Own(std::move(*weight++));
    to_latent_.Own(std::move(*weight++));
    if (both_forms) keys_.Own(std::move(*weight++));
  }
  return base::OkStatus();
}

tensor::View LatentAttention::Queries(const Step& step, const tensor::View& first,
                                      const tensor::View& out) const {
  tensor::View queries = first;
  if (spec_.query_rank > 0) {
    ops::Dispatch(
        step.context, step.ops.rms_norm,
        {.x = first, .weight = query_norm_.view(), .epsilon = kLatentNormEpsilon, .out = first});
    ops::Dispatch(step.context, step.ops.linear,
                  {.x = first, .weight = query_.get(), .bias = {}, .out = out});
    queries = out;
  }
  const tensor::View heads = queries.SplitColumns(spec_.heads, spec_.nope_dim + spec_.rope_dim);
  ops::Dispatch(step.context, step.ops.rope,
                {.x = heads.Columns(spec_.nope_dim, spec_.rope_dim),
                 .cosines = step.cosines,
                 .sines = step.sines,
                 .pairs = pairs_});
  return heads;
}

void LatentAttention::StartWrites(const Step& step, const tensor::View& latent,
                                  const tensor::View& rope_key, CacheWrites& writes) const {
  const tensor::View rope_head = rope_key.SplitColumns(1, spec_.rope_dim);
  ops::Dispatch(
      step.context, step.ops.rms_norm,
      {.x = latent, .weight = latent_norm_.view(), .epsilon = kLatentNormEpsilon, .out = latent});
  ops::Dispatch(step.context, step.ops.rope,
                {.x = rope_head, .cosines = step.cosines, .sines = step.sines, .pairs = pairs_});
  writes.Start({{kv::kLatentPlane, latent.SplitColumns(1, spec_.latent_rank)},
                {kv::kRopeKeyPlane, rope_head}});
}

void LatentAttention::Absorbed(const Step& step, const tensor::ConstView& queries,
                               const LayerCache& cache, const tensor::ConstView& selected,
                               const tensor::View& values) const {
  const int64_t rows = queries.size(0);
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View latent_queries =
      scratch.Take(queries.dtype(), {rows, spec_.heads, spec_.latent_rank});
  const tensor::View latents =
      scratch.Take(queries.dtype(), {rows, spec_.heads, spec_.latent_rank});
  ops::Dispatch(
      step.context, step.ops.head_linear,
      {.x = queries.Columns(0, spec_.nope_dim), .weights = to_latent_.list, .out = latent_queries});
  AttendAcrossRanks(step, {latent_queries, queries.Columns(spec_.nope_dim, spec_.rope_dim)},
                    latents,
                    [&](const auto& all, const auto& tables, const auto& part, const auto& sums) {
                      ops::Dispatch(step.context, step.ops.latent_attention,
                                    {.latent_queries = all[0],
                                     .rope_queries = all[1],
                                     .latent_cache = cache.planes[kv::kLatentPlane],
                                     .rope_cache = cache.planes[kv::kRopeKeyPlane],
                                     .tables = tables,
                                     .scale = scale_,
                                     .selected = selected,
                                     .out = part,
                                     .exp_sums = sums});
                    });
  ops::Dispatch(step.context, step.ops.head_linear,
                {.x = latents, .weights = from_latent_.list, .out = values});
}

void LatentAttention::Expanded(const Step& step, const tensor::ConstView& queries,
                               const LayerCache& cache, const tensor::View& values) const {
  ops::Dispatch(step.context, step.ops.expanded_latent_attention,
                {.queries = queries,
                 .latent_cache = cache.planes[kv::kLatentPlane],
                 .rope_cache = cache.planes[kv::kRopeKeyPlane],
                 .key_weights = keys_.list,
                 .value_weights = from_latent_.list,
                 .tables = step.tables,
                 .scale = scale_,
                 .out = values});
}

void LatentAttention::Forward(const Step& step, const tensor::ConstView& x, const LayerCache& cache,
                              const tensor::View& out) const {
  const int64_t rows = x.size(0);
  const tensor::DType type = x.dtype();
  tensor::Workspace::Scope scratch(step.context.workspace);
  const tensor::View input = scratch.Take(type, {rows, kept_size() + first_size()});
  const tensor::View query_rows =
      spec_.query_rank > 0 ? scratch.Take(type, {rows, query_size()}) : tensor::View();
  const tensor::View values = scratch.Take(type, {rows, int64_t{spec_.heads} * spec_.value_dim});

  CacheWrites writes(step, cache, scratch);
  ops::Dispatch(
      step.context, step.ops.linear,
      {.x = x, .weight = kept_.get(), .bias = {}, .out = input.Columns(0, kept_->rows())});
  StartWrites(step, input.Columns(0, spec_.latent_rank),
              input.Columns(spec_.latent_rank, spec_.rope_dim), writes);
  if (indexer_) indexer_->StartWrites(step, x, writes);
  const tensor::View first = input.Columns(kept_size(), first_size());
  if (first_)
    ops::Dispatch(step.context, step.ops.linear,
                  {.x = x, .weight = first_.get(), .bias = {}, .out = first});
  const tensor::View queries = Queries(step, first, query_rows);
  writes.Finish();

  const tensor::View value_heads = values.SplitColumns(spec_.heads, spec_.value_dim);
  const LatentFormRule rule = {spec_, indexer_ ? indexer_->top_k() : INT64_MAX, keys_.list.empty()};
  ForLatentRuns(rule, step, [&](const LatentRun& run) {
    const Step part = step.Part(run.first_slice, run.slices, run.first_row, run.rows);
    const auto rows_of = [&](const auto& view) { return view.Rows(run.first_row, run.rows); };
    if (run.expanded) return Expanded(part, rows_of(queries), cache, rows_of(value_heads));
    tensor::Workspace::Scope lists(step.context.workspace);
    tensor::View selected;
    const int64_t listed = indexer_ ? indexer_->ListedRows(part) : 0;
    if (listed > 0) {
      selected = lists.Take(tensor::DType::kI32, {listed, indexer_->top_k()});
      if (!indexer_->Select(part, rows_of(x), rows_of(first), cache.planes[kv::kIndexKeyPlane],
                            selected))
        return;
    }
    Absorbed(part, rows_of(queries), cache, selected, rows_of(value_heads));
  });
  ops::Dispatch(step.context, step.ops.linear,
                {.x = values, .weight = output_.get(), .bias = {}, .out = out});
}

int64_t LatentAttention::ScratchBytes(const StepBounds& bounds) const {
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t rows = bounds.rows;
  const int64_t element = rows * tensor::SizeOf(bounds.compute);
  const int64_t kept = kept_size() + (indexer_ ? indexer_->key_size() : 0);
  int64_t bytes = padded(element * (kept_size() + first_size())) +
                  padded(element * spec_.heads * spec_.value_dim) +
                  CacheWrites::ScratchBytes(bounds, kept);
  if (spec_.query_rank > 0) bytes += padded(element * query_size());
  // The indexer's scratch is given back before the latents' is taken.
  const int64_t latent_size = int64_t{spec_.heads} * spec_.latent_rank;
  const int64_t latents =
      2 * padded(element * latent_size) +
      DividedAttentionBytes(bounds, latent_size + int64_t{spec_.heads} * spec_.rope_dim,
                            latent_size, spec_.heads);
  if (!indexer_) return bytes + latents;
  return bytes + indexer_->ListBytes(bounds) + std::max(latents, indexer_->ScratchBytes(bounds));
}

}  // namespace

base::Result<std::unique_ptr<Attention>> LoadLatentAttention(const spec::ModelSpec& model,
                                                             const std::string& prefix,
                                                             WeightLoader& loader) {
  auto block = std::make_unique<LatentAttention>(model);
  LONGSPAN_RETURN_IF_ERROR(block->Load(model, prefix, loader));
  return std::unique_ptr<Attention>(std::move(block));
}

}  // namespace longspan::model
