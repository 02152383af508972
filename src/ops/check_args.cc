// Shape checks of the ops: a mismatch is a programmer's mistake and aborts with the shapes.
#include "ops/check_shapes.h"
#include "ops/op_table.h"

namespace longspan::ops {
using tensor::ConstView;
using tensor::DType;

void CheckArgs(const EmbeddingArgs& args) {
  CheckTable(args.tokens, DType::kI32, args.out.size(0), "tokens");
  if (args.table.empty())
    LONGSPAN_CHECK(args.packed != nullptr && args.packed->is_table(),
                   "an embedding without a table");
  const int64_t columns = args.table.empty() ? args.packed->columns() : args.table.size(1);
  LONGSPAN_CHECK((args.table.empty() || IsFloat(args.table)) && IsFloat(args.out) &&
                     columns == args.out.size(1),
                 "embedding of {} columns into {}", columns, args.out.size(1));
}

void CheckArgs(const GatherRowsArgs& args) {
  CheckTable(args.index, DType::kI32, args.out.size(0), "index");
  LONGSPAN_CHECK(args.x.dtype() == args.out.dtype() && args.x.size(1) == args.out.size(1),
                 "gather of {} columns into {}", args.x.size(1), args.out.size(1));
}

void CheckArgs(const RmsNormArgs& args) {
  LONGSPAN_CHECK(SameShape(args.x, args.out) && IsFloat(args.x) && args.x.rank() >= 2,
                 "rms_norm needs x and out alike");
  CheckTable(args.weight, DType::kF32, args.x.size(args.x.rank() - 1), "weight");
}

void CheckArgs(const LayerNormArgs& args) {
  LONGSPAN_CHECK(SameShape(args.x, args.out) && IsFloat(args.x) && args.x.rank() == 2,
                 "layer_norm needs x and out alike");
  CheckTable(args.weight, DType::kF32, args.x.size(1), "weight");
  CheckTable(args.bias, DType::kF32, args.x.size(1), "bias");
}

void CheckArgs(const AddArgs& args) {
  LONGSPAN_CHECK(SameShape(args.x, args.y) && IsFloat(args.x) && args.x.rank() == 2,
                 "add needs x and y alike");
}

void CheckArgs(const LinearArgs& args) {
  LONGSPAN_CHECK(args.weight != nullptr && IsFloat(args.x) && args.x.rank() == 2 &&
                     args.x.size(1) == args.weight->columns(),
                 "linear: x has {} columns", args.x.size(1));
  LONGSPAN_CHECK(args.out.size(0) == args.x.size(0) && args.out.size(1) == args.weight->rows() &&
                     (args.out.dtype() == DType::kF32 || args.out.dtype() == args.x.dtype()),
                 "linear: out is [{}, {}] for [{}, {}]", args.out.size(0), args.out.size(1),
                 args.x.size(0), args.weight->rows());
  if (!args.bias.empty()) CheckTable(args.bias, DType::kF32, args.weight->rows(), "bias");
}

void CheckArgs(const RopeTableArgs& args) {
  CheckTable(args.positions, DType::kI32, args.cosines.size(0), "positions");
  CheckTable(args.inverse_frequencies, DType::kF32, args.cosines.size(1), "inverse_frequencies");
  LONGSPAN_CHECK(SameShape(args.cosines, args.sines) && args.cosines.dtype() == DType::kF32,
                 "rope tables are f32 and alike");
}

void CheckArgs(const RopeArgs& args) {
  LONGSPAN_CHECK(args.x.rank() == 3 && IsFloat(args.x), "rope: x is [rows, heads, dim]");
  LONGSPAN_CHECK(args.cosines.size(0) >= args.x.size(0) && SameShape(args.cosines, args.sines) &&
                     2 * args.cosines.size(1) == args.x.size(2),
                 "rope: tables of {} pairs for heads of {}", args.cosines.size(1), args.x.size(2));
}

void CheckArgs(const CacheWriteArgs& args) {
  CheckCache(args.cache);
  CheckTable(args.slots, DType::kI64, args.x.size(0), "slots");
  LONGSPAN_CHECK(IsFloat(args.x) && args.x.rank() == 3 && args.x.size(1) == args.cache.size(1) &&
                     args.x.size(2) == args.cache.size(3),
                 "cache_write: rows of [{}, {}, {}]", args.x.size(0), args.x.size(1),
                 args.x.size(2));
}

void CheckArgs(const AttentionArgs& args) {
  CheckCache(args.key_cache);
  LONGSPAN_CHECK(SameShape(args.key_cache, args.value_cache) && args.value_cache.contiguous(),
                 "attention: the caches are alike");
  LONGSPAN_CHECK(SameShape(args.queries, args.out) && IsFloat(args.queries) &&
                     args.queries.rank() == 3 && args.queries.size(2) == args.key_cache.size(3) &&
                     args.queries.size(1) % args.key_cache.size(1) == 0 &&
                     args.queries.size(0) == args.tables.rows,
                 "attention: queries of [{}, {}, {}]", args.queries.size(0), args.queries.size(1),
                 args.queries.size(2));
  CheckPagedTables(args.tables, args.key_cache.size(2));
  CheckExpSums(args.exp_sums, args.out);
}

void CheckArgs(const MergeAttentionArgs& args) {
  const ConstView& out = args.out;
  LONGSPAN_CHECK(args.parts.rank() == 4 && args.parts.contiguous() && IsFloat(args.parts) &&
                     out.rank() == 3 && out.dtype() == args.parts.dtype() &&
                     args.parts.size(1) == out.size(0) && args.parts.size(2) == out.size(1) &&
                     args.parts.size(3) == out.size(2) && args.parts.size(0) <= kMostMergedParts,
                 "merge_attention: {} parts of [{}, {}, {}]", args.parts.size(0),
                 args.parts.size(1), args.parts.size(2), args.parts.size(3));
  CheckTable(args.exp_sums, DType::kF32, 2 * args.parts.size(0) * out.size(0) * out.size(1),
             "exp_sums");
}

void CheckArgs(const SiluMulArgs& args) {
  LONGSPAN_CHECK(args.gate_up.dtype() == args.out.dtype() && IsFloat(args.out) &&
                     args.gate_up.size(0) == args.out.size(0) &&
                     args.gate_up.size(1) == 2 * args.out.size(1),
                 "silu_mul: {} columns into {}", args.gate_up.size(1), args.out.size(1));
}

void CheckArgs(const RouterArgs& args) {
  LONGSPAN_CHECK(args.logits.dtype() == DType::kF32 && args.expert_ids.dtype() == DType::kI32 &&
                     args.expert_weights.dtype() == DType::kF32 &&
                     args.expert_ids.size(1) <= args.logits.size(1) &&
                     args.expert_ids.size(1) == args.expert_weights.size(1) &&
                     args.logits.size(0) == args.expert_ids.size(0),
                 "router: {} of {} experts", args.expert_ids.size(1), args.logits.size(1));
  const int64_t experts = args.logits.size(1);
  LONGSPAN_CHECK(args.groups >= 1 && experts % args.groups == 0 && args.groups_kept >= 1 &&
                     args.groups_kept <= args.groups &&
                     args.expert_ids.size(1) <= experts / args.groups * args.groups_kept,
                 "router: {} of {} groups", args.groups_kept, args.groups);
  if (!args.bias.empty()) CheckTable(args.bias, DType::kF32, experts, "bias");
  if (args.scoring == spec::ExpertScoring::kSoftmax)
    LONGSPAN_CHECK(args.bias.empty() && args.groups == 1, "router: softmax has no bias or groups");
}

void CheckArgs(const ExpertOrderArgs& args) {
  CheckTable(args.source_rows, DType::kI32, args.expert_ids.elements(), "source_rows");
  CheckTable(args.sorted_places, DType::kI32, args.expert_ids.elements(), "sorted_places");
  LONGSPAN_CHECK(args.expert_ids.dtype() == DType::kI32 &&
                     args.expert_begin.dtype() == DType::kI32 && args.expert_begin.size(0) >= 2,
                 "expert_order needs at least one expert");
}

void CheckArgs(const GroupedLinearArgs& args) {
  LONGSPAN_CHECK(!args.weights.empty() && IsFloat(args.x) && args.out.dtype() == args.x.dtype(),
                 "grouped_linear needs experts and out of x's dtype");
  CheckTable(args.expert_begin, DType::kI32, static_cast<int64_t>(args.weights.size()) + 1,
             "expert_begin");
  if (!args.source_rows.empty())
    CheckTable(args.source_rows, DType::kI32, args.out.size(0), "source_rows");
  for (const PackedWeight* weight : args.weights)
    LONGSPAN_CHECK(weight->columns() == args.x.size(1) && weight->rows() == args.out.size(1),
                   "grouped_linear: an expert of [{}, {}]", weight->rows(), weight->columns());
}

void CheckArgs(const ExpertCombineArgs& args) {
  LONGSPAN_CHECK(args.x.dtype() == args.out.dtype() && IsFloat(args.x) &&
                     args.x.size(1) == args.out.size(1) &&
                     args.sorted_places.elements() == args.expert_weights.elements() &&
                     args.sorted_places.size(0) == args.out.size(0),
                 "expert_combine: {} columns into {}", args.x.size(1), args.out.size(1));
}

void CheckArgs(const SampleArgs& args) {
  const int64_t rows = args.logits.size(0);
  const SamplingTables& t = args.tables;
  LONGSPAN_CHECK(args.logits.dtype() == DType::kF32, "logits are f32");
  for (const ConstView& table : {t.temperature, t.top_p, t.min_p, t.repetition_penalty,
                                 t.frequency_penalty, t.presence_penalty})
    CheckTable(table, DType::kF32, rows, "sampling parameters");
  CheckTable(t.top_k, DType::kI32, rows, "top_k");
  CheckTable(t.seed, DType::kI64, rows, "seed");
  CheckTable(t.position, DType::kI64, rows, "position");
  CheckTable(t.history_begin, DType::kI32, rows + 1, "history_begin");
  CheckTable(args.tokens, DType::kI32, rows, "tokens");
  CheckTable(args.logprobs, DType::kF32, rows, "logprobs");
}

void CheckArgs(const TokenLogprobArgs& args) {
  LONGSPAN_CHECK(args.logits.dtype() == DType::kF32, "logits are f32");
  CheckTable(args.tokens, DType::kI32, args.logits.size(0), "tokens");
  CheckTable(args.logprobs, DType::kF32, args.logits.size(0), "logprobs");
}

void CheckArgs(const TopLogprobsArgs& args) {
  LONGSPAN_CHECK(args.logits.dtype() == DType::kF32 && args.tokens.dtype() == DType::kI32 &&
                     args.logprobs.dtype() == DType::kF32 &&
                     args.tokens.size(1) <= args.logits.size(1) &&
                     args.tokens.size(1) == args.logprobs.size(1),
                 "top_logprobs: {} of {}", args.tokens.size(1), args.logits.size(1));
}

void CheckArgs(const TopLogitsArgs& args) {
  LONGSPAN_CHECK(args.logits.dtype() == DType::kF32 && args.tokens.dtype() == DType::kI32 &&
                     args.values.dtype() == DType::kF32 && args.log_sums.dtype() == DType::kF32 &&
                     args.tokens.size(1) <= args.logits.size(1) &&
                     args.tokens.size(1) == args.values.size(1) &&
                     args.log_sums.size(0) == args.logits.size(0),
                 "top_logits: {} of {}", args.tokens.size(1), args.logits.size(1));
}

}  // namespace longspan::ops
