// Shape checks of the ops of latent and sparse attention.
#include "ops/check_shapes.h"
#include "ops/expanded_latent_attention.h"
#include "ops/head_linear.h"
#include "ops/index_select.h"
#include "ops/latent_attention.h"

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
  CheckLogSums(args.log_sums, args.out);
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
  CheckCache(args.index_cache);
  LONGSPAN_CHECK(IsFloat(args.queries) && args.queries.rank() == 3 &&
                     args.queries.size(0) == args.tables.rows && args.index_cache.size(1) == 1 &&
                     args.queries.size(2) == args.index_cache.size(3),
                 "index_select: queries of [{}, {}, {}]", args.queries.size(0),
                 args.queries.size(1), args.queries.size(2));
  LONGSPAN_CHECK(args.head_weights.dtype() == DType::kF32 && args.head_weights.rank() == 2 &&
                     args.head_weights.size(0) == args.tables.rows &&
                     args.head_weights.size(1) == args.queries.size(1) && args.scale > 0,
                 "index_select: head weights of [{}, {}], scale {}", args.head_weights.size(0),
                 args.head_weights.size(1), args.scale);
  LONGSPAN_CHECK(args.selected.dtype() == DType::kI32 && args.selected.rank() == 2 &&
                     args.selected.size(0) == args.tables.rows && args.selected.size(1) > 0,
                 "index_select: {} lists for {} rows", args.selected.size(0), args.tables.rows);
  CheckPagedTables(args.tables, args.index_cache.size(2));
}

}  // namespace longspan::ops
