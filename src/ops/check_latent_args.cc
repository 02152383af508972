// Shape checks of the ops of latent and sparse attention.
#include "ops/check_shapes.h"
#include "ops/divided_index_select.h"
#include "ops/expanded_latent_attention.h"
#include "ops/head_linear.h"
#include "ops/index_select.h"
#include "ops/latent_attention.h"
#include "ops/merge_attention.h"

namespace longspan::ops {

using tensor::DType;

namespace {

void CheckLatentCaches(const tensor::ConstView& latents, const tensor::ConstView& rope_keys) {
  CheckCache(latents);
  CheckCache(rope_keys);
  LONGSPAN_CHECK(latents.dtype() == rope_keys.dtype() && latents.size(0) == rope_keys.size(0) &&
                     latents.size(1) == 1 && rope_keys.size(1) == 1 &&
                     latents.size(2) == rope_keys.size(2),
                 "the caches of latents and rope keys have the same pages, of one head");
}

// Of either op that scores positions.
template <typename Args>
void CheckScoredRows(const Args& args, const char* op) {
  CheckCache(args.index_cache);
  LONGSPAN_CHECK(IsFloat(args.queries) && args.queries.rank() == 3 &&
                     args.queries.size(0) == args.tables.rows && args.index_cache.size(1) == 1 &&
                     args.queries.size(2) == args.index_cache.size(3),
                 "{}: queries of [{}, {}, {}]", op, args.queries.size(0), args.queries.size(1),
                 args.queries.size(2));
  LONGSPAN_CHECK(args.head_weights.dtype() == DType::kF32 && args.head_weights.rank() == 2 &&
                     args.head_weights.size(0) == args.tables.rows &&
                     args.head_weights.size(1) == args.queries.size(1) && args.scale > 0,
                 "{}: head weights of [{}, {}], scale {}", op, args.head_weights.size(0),
                 args.head_weights.size(1), args.scale);
  CheckPagedTables(args.tables, args.index_cache.size(2));
}

void CheckPageIndices(const tensor::ConstView& indices, const StepTables& tables) {
  LONGSPAN_CHECK(indices.dtype() == DType::kI32 && indices.rank() == 2 &&
                     indices.size(0) >= tables.slices &&
                     indices.size(1) == tables.page_table.size(1),
                 "page_indices of [{}, {}] for {} slices of {} pages", indices.size(0),
                 indices.size(1), tables.slices, tables.page_table.size(1));
}

}  // namespace

void CheckArgs(const HeadLinearArgs& args) {
  LONGSPAN_CHECK(IsFloat(args.x) && args.x.rank() == 3 && args.out.rank() == 3 &&
                     args.out.dtype() == args.x.dtype() && args.out.size(0) == args.x.size(0) &&
                     args.out.size(1) == args.x.size(1),
                 "head_linear: x of [{}, {}, {}]", args.x.size(0), args.x.size(1), args.x.size(2));
  LONGSPAN_CHECK(static_cast<int64_t>(args.weights.size()) == args.x.size(1),
                 "head_linear: {} weights for {} heads", args.weights.size(), args.x.size(1));
  for (const PackedWeight* weight : args.weights)
    LONGSPAN_CHECK(weight->columns() == args.x.size(2) && weight->rows() == args.out.size(2),
                   "head_linear: a head of [{}, {}]", weight->rows(), weight->columns());
}

void CheckArgs(const LatentAttentionArgs& args) {
  CheckLatentCaches(args.latent_cache, args.rope_cache);
  LONGSPAN_CHECK(SameShape(args.latent_queries, args.out) && IsFloat(args.latent_queries) &&
                     args.latent_queries.rank() == 3 &&
                     args.latent_queries.size(0) == args.tables.rows &&
                     args.latent_queries.size(2) == args.latent_cache.size(3),
                 "latent_attention: latent queries of [{}, {}, {}]", args.latent_queries.size(0),
                 args.latent_queries.size(1), args.latent_queries.size(2));
  LONGSPAN_CHECK(args.rope_queries.dtype() == args.latent_queries.dtype() &&
                     args.rope_queries.rank() == 3 &&
                     args.rope_queries.size(0) == args.tables.rows &&
                     args.rope_queries.size(1) == args.latent_queries.size(1) &&
                     args.rope_queries.size(2) == args.rope_cache.size(3),
                 "latent_attention: rope queries of [{}, {}, {}]", args.rope_queries.size(0),
                 args.rope_queries.size(1), args.rope_queries.size(2));
  CheckPagedTables(args.tables, args.latent_cache.size(2));
  if (!args.selected.empty())
    LONGSPAN_CHECK(args.selected.dtype() == DType::kI32 && args.selected.rank() == 2 &&
                       args.selected.size(0) == args.tables.rows && args.selected.size(1) > 0,
                   "latent_attention: {} lists for {} rows", args.selected.size(0),
                   args.tables.rows);
  CheckExpSums(args.exp_sums, args.out);
}

void CheckArgs(const ExpandedLatentAttentionArgs& args) {
  CheckLatentCaches(args.latent_cache, args.rope_cache);
  CheckPagedTables(args.tables, args.latent_cache.size(2));
  const tensor::ConstView& queries = args.queries;
  LONGSPAN_CHECK(IsFloat(queries) && queries.rank() == 3 && queries.size(0) == args.tables.rows,
                 "expanded_latent_attention: queries of [{}, {}, {}]", queries.size(0),
                 queries.size(1), queries.size(2));
  LONGSPAN_CHECK(args.out.rank() == 3 && args.out.dtype() == queries.dtype() &&
                     args.out.size(0) == queries.size(0) && args.out.size(1) == queries.size(1),
                 "expanded_latent_attention: out of [{}, {}, {}]", args.out.size(0),
                 args.out.size(1), args.out.size(2));
  const auto heads = static_cast<size_t>(queries.size(1));
  LONGSPAN_CHECK(args.key_weights.size() == heads && args.value_weights.size() == heads,
                 "expanded_latent_attention: {} and {} weights for {} heads",
                 args.key_weights.size(), args.value_weights.size(), heads);
  const int64_t rank = args.latent_cache.size(3);
  const int64_t nope = queries.size(2) - args.rope_cache.size(3);
  for (size_t head = 0; head < heads; ++head) {
    const PackedWeight& key = *args.key_weights[head];
    const PackedWeight& value = *args.value_weights[head];
    LONGSPAN_CHECK(key.rows() == nope && nope % 2 == 0 && key.columns() == rank &&
                       value.rows() == args.out.size(2) && value.columns() == rank,
                   "expanded_latent_attention: a head of [{}, {}] and [{}, {}]", key.rows(),
                   key.columns(), value.rows(), value.columns());
  }
}

void CheckArgs(const IndexSelectArgs& args) {
  CheckScoredRows(args, "index_select");
  LONGSPAN_CHECK(args.selected.dtype() == DType::kI32 && args.selected.rank() == 2 &&
                     args.selected.size(0) == args.tables.rows && args.selected.size(1) > 0,
                 "index_select: {} lists for {} rows", args.selected.size(0), args.tables.rows);
}

void CheckArgs(const IndexCandidatesArgs& args) {
  CheckScoredRows(args, "index_candidates");
  CheckPageIndices(args.page_indices, args.tables);
  LONGSPAN_CHECK(
      args.scores.rank() == 2 && args.scores.size(0) == args.tables.rows && args.scores.size(1) > 0,
      "index_candidates: {} lists for {} rows", args.scores.size(0), args.tables.rows);
  CheckTable(args.scores, DType::kF32, args.scores.elements(), "scores");
  CheckTable(args.positions, DType::kI32, args.scores.elements(), "positions");
}

void CheckArgs(const IndexMergeArgs& args) {
  LONGSPAN_CHECK(args.scores.rank() == 3 && args.scores.size(0) <= kMostMergedParts,
                 "index_merge: {} parts", args.scores.size(0));
  CheckTable(args.scores, DType::kF32, args.scores.elements(), "scores");
  CheckTable(args.positions, DType::kI32, args.scores.elements(), "positions");
  CheckTable(args.counts, DType::kI32, args.scores.size(0) * args.scores.size(1), "counts");
}

void CheckArgs(const IndexTakeArgs& args) {
  CheckPagedTables(args.tables, args.page_size);
  CheckPageIndices(args.page_indices, args.tables);
  CheckTable(args.counts, DType::kI32, args.tables.rows, "counts");
  LONGSPAN_CHECK(args.positions.dtype() == DType::kI32 && args.positions.rank() == 2 &&
                     args.positions.size(0) == args.tables.rows,
                 "index_take: {} lists for {} rows", args.positions.size(0), args.tables.rows);
}

}  // namespace longspan::ops
