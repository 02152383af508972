// Probes of attention in all its forms, and of what selects for it.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "apps/op_probes.h"
#include "base/mix_bits.h"

namespace longspan::apps {
namespace {

using tensor::View;

constexpr int64_t kPageSize = OpBench::kPageSize;

std::string Describe(const SliceShape& shape) {
  return fmt::format("{} x {} on {}", shape.slices, shape.rows, shape.keys);
}

int64_t CacheCopies(const OpBench& bench, const SliceShape& shape, int64_t elements_per_token) {
  return bench.CopiesBeyondCaches(shape.slices * shape.keys * elements_per_token *
                                  tensor::SizeOf(bench.type()));
}

// One plane of a cache that holds so many copies of the sequences.
View CachePlane(OpBench& bench, const SliceShape& shape, int64_t copies, int64_t heads,
                int64_t dim) {
  return bench.Random({OpBench::PagesOf(shape, copies), heads, kPageSize, dim});
}

double CacheBytes(const OpBench& bench, const SliceShape& shape, int64_t elements_per_token) {
  return static_cast<double>(shape.slices * shape.keys) *
         static_cast<double>(elements_per_token * tensor::SizeOf(bench.type()));
}

float ScaleOf(int64_t dim) { return 1 / std::sqrt(static_cast<float>(dim)); }

// For every row top_k of the positions that it sees, spread over all of them at random.
std::vector<int32_t> Selections(const SliceShape& shape, int64_t top_k) {
  std::vector<int32_t> selected;
  uint64_t index = 0;
  for (int64_t row = 0; row < shape.all_rows(); ++row) {
    const int64_t seen = shape.keys - shape.rows + 1 + row % shape.rows;
    const int64_t chosen = std::min(top_k, seen);
    for (int64_t i = 0; i < chosen; ++i) {
      const int64_t begin = i * seen / chosen;
      const int64_t end = (i + 1) * seen / chosen;
      const auto drawn =
          static_cast<int64_t>(base::MixBits(++index) % static_cast<uint64_t>(end - begin));
      selected.push_back(static_cast<int32_t>(begin + drawn));
    }
    selected.insert(selected.end(), static_cast<size_t>(top_k - chosen), -1);
  }
  return selected;
}

// What index queries meet: those of all rows with their heads' weights, and the keys' cache.
struct IndexInputs {
  int64_t copies = 0;
  View queries;
  View head_weights;
  View keys;
};

IndexInputs MakeIndexInputs(OpBench& bench, const SliceShape& shape,
                            const spec::IndexerSpec& indexer) {
  const int64_t rows = shape.all_rows();
  const int64_t copies = CacheCopies(bench, shape, indexer.head_dim);
  bench.Reserve({.rows = rows,
                 .page_size = kPageSize,
                 .index_heads = indexer.heads,
                 .index_dim = indexer.head_dim,
                 .index_top_k = indexer.top_k});
  return {.copies = copies,
          .queries = bench.Random({rows, indexer.heads, indexer.head_dim}),
          .head_weights = bench.Random(tensor::DType::kF32, {rows, indexer.heads}),
          .keys = CachePlane(bench, shape, copies, 1, indexer.head_dim)};
}

// As many zeros as rows select.
View NoSelection(OpBench& bench, int64_t rows, int64_t top_k) {
  return bench.Indices(std::vector<int32_t>(static_cast<size_t>(rows * top_k)), {rows, top_k});
}

// Pages of a rank that has every `stride`-th one of a sequence, as large as the tables' page table.
View PageIndices(OpBench& bench, const ops::StepTables& tables, int32_t stride) {
  const int64_t columns = tables.page_table.size(1);
  std::vector<int32_t> indices;
  for (int64_t slice = 0; slice < tables.slices; ++slice)
    for (int64_t page = 0; page < columns; ++page)
      indices.push_back(static_cast<int32_t>(page) * stride);
  return bench.Indices(indices, {tables.slices, columns});
}

}  // namespace

base::Result<OpFigure> ProbeAttention(OpBench& bench, const SliceShape& shape,
                                      const HeadsShape& heads) {
  const int64_t rows = shape.all_rows();
  const int64_t kept = 2 * heads.kv_heads * heads.head_dim;
  const int64_t copies = CacheCopies(bench, shape, kept);
  bench.Reserve({.rows = rows,
                 .heads = heads.heads,
                 .kv_heads = heads.kv_heads,
                 .head_dim = heads.head_dim,
                 .page_size = kPageSize});
  const View queries = bench.Random({rows, heads.heads, heads.head_dim});
  const View keys = CachePlane(bench, shape, copies, heads.kv_heads, heads.head_dim);
  const View values = CachePlane(bench, shape, copies, heads.kv_heads, heads.head_dim);
  const View out = bench.Random({rows, heads.heads, heads.head_dim});
  std::vector<ops::AttentionArgs> variants;
  for (const ops::StepTables& tables : bench.Tables(shape, copies))
    variants.push_back({.queries = queries,
                        .key_cache = keys,
                        .value_cache = values,
                        .tables = tables,
                        .scale = ScaleOf(heads.head_dim),
                        .out = out});
  return bench.Time(bench.ops().attention, variants,
                    {.op = "attention",
                     .shape = fmt::format("{}, {}/{} heads of {}", Describe(shape), heads.heads,
                                          heads.kv_heads, heads.head_dim),
                     .flops = 4 * shape.Pairs() * static_cast<double>(heads.heads * heads.head_dim),
                     .bytes = CacheBytes(bench, shape, kept) +
                              static_cast<double>(queries.bytes() + out.bytes())});
}

base::Result<OpFigure> ProbeLatentAttention(OpBench& bench, const SliceShape& shape,
                                            const spec::LatentAttentionSpec& latent,
                                            int64_t top_k) {
  const int64_t rows = shape.all_rows();
  const int64_t rank = latent.latent_rank;
  const int64_t rope = latent.rope_dim;
  const int64_t copies = CacheCopies(bench, shape, rank + rope);
  bench.Reserve({.rows = rows,
                 .heads = latent.heads,
                 .page_size = kPageSize,
                 .latent_rank = rank,
                 .latent_rope_dim = rope,
                 .index_top_k = top_k});
  const View latent_queries = bench.Random({rows, latent.heads, rank});
  const View rope_queries = bench.Random({rows, latent.heads, rope});
  const View latents = CachePlane(bench, shape, copies, 1, rank);
  const View rope_keys = CachePlane(bench, shape, copies, 1, rope);
  const View out = bench.Random({rows, latent.heads, rank});
  View selected;
  if (top_k > 0) selected = bench.Indices(Selections(shape, top_k), {rows, top_k});
  std::vector<ops::LatentAttentionArgs> variants;
  for (const ops::StepTables& tables : bench.Tables(shape, copies))
    variants.push_back({.latent_queries = latent_queries,
                        .rope_queries = rope_queries,
                        .latent_cache = latents,
                        .rope_cache = rope_keys,
                        .tables = tables,
                        .scale = ScaleOf(latent.nope_dim + rope),
                        .selected = selected,
                        .out = out});
  const double pairs = top_k > 0 ? shape.Pairs(top_k) : shape.Pairs();
  SliceShape read = shape;
  if (top_k > 0) read.keys = std::min(shape.keys, shape.rows * top_k);
  return bench.Time(
      bench.ops().latent_attention, variants,
      {.op = "latent_attention",
       .shape = fmt::format("{}{}, {} heads of {} + {}", Describe(shape),
                            top_k > 0 ? fmt::format(", {} selected", top_k) : "", latent.heads,
                            rank, rope),
       .flops = 2 * pairs * static_cast<double>(latent.heads * (2 * rank + rope)),
       .bytes = CacheBytes(bench, read, rank + rope) +
                static_cast<double>(latent_queries.bytes() + rope_queries.bytes() + out.bytes())});
}

base::Result<OpFigure> ProbeExpandedLatentAttention(OpBench& bench, const SliceShape& shape,
                                                    const spec::LatentAttentionSpec& latent) {
  const int64_t rows = shape.all_rows();
  const int64_t rank = latent.latent_rank;
  const int64_t rope = latent.rope_dim;
  const int64_t key_dim = latent.nope_dim + rope;
  const int64_t expanded = int64_t{latent.heads} * (latent.nope_dim + latent.value_dim);
  const int64_t copies = CacheCopies(bench, shape, rank + rope);
  bench.Reserve({.rows = rows,
                 .heads = latent.heads,
                 .page_size = kPageSize,
                 .max_columns = rank,
                 .latent_rank = rank,
                 .latent_rope_dim = rope,
                 .latent_nope_dim = latent.nope_dim,
                 .latent_value_dim = latent.value_dim});
  const View queries = bench.Random({rows, latent.heads, key_dim});
  const View latents = CachePlane(bench, shape, copies, 1, rank);
  const View rope_keys = CachePlane(bench, shape, copies, 1, rope);
  const View out = bench.Random({rows, latent.heads, latent.value_dim});
  const auto key_weights = bench.Weights(latent.heads, latent.nope_dim, rank);
  const auto value_weights = bench.Weights(latent.heads, latent.value_dim, rank);
  std::vector<ops::ExpandedLatentAttentionArgs> variants;
  for (const ops::StepTables& tables : bench.Tables(shape, copies))
    variants.push_back({.queries = queries,
                        .latent_cache = latents,
                        .rope_cache = rope_keys,
                        .key_weights = key_weights,
                        .value_weights = value_weights,
                        .tables = tables,
                        .scale = ScaleOf(key_dim),
                        .out = out});
  const auto all_keys = static_cast<double>(shape.slices * shape.keys);
  return bench.Time(bench.ops().expanded_latent_attention, variants,
                    {.op = "expanded_latent_attention",
                     .shape = fmt::format("{}, {} heads of {} + {}, {}", Describe(shape),
                                          latent.heads, latent.nope_dim, rope, latent.value_dim),
                     .flops = 2 * shape.Pairs() *
                                  static_cast<double>(latent.heads * (key_dim + latent.value_dim)) +
                              2 * all_keys * static_cast<double>(expanded * rank),
                     .bytes = CacheBytes(bench, shape, rank + rope) +
                              static_cast<double>(expanded * rank * tensor::SizeOf(bench.type()) +
                                                  queries.bytes() + out.bytes())});
}

base::Result<OpFigure> ProbeIndexSelect(OpBench& bench, const SliceShape& shape,
                                        const spec::IndexerSpec& indexer) {
  const IndexInputs inputs = MakeIndexInputs(bench, shape, indexer);
  const View selected = NoSelection(bench, shape.all_rows(), indexer.top_k);
  std::vector<ops::IndexSelectArgs> variants;
  for (const ops::StepTables& tables : bench.Tables(shape, inputs.copies))
    variants.push_back({.queries = inputs.queries,
                        .head_weights = inputs.head_weights,
                        .index_cache = inputs.keys,
                        .tables = tables,
                        .scale = ScaleOf(indexer.head_dim),
                        .selected = selected});
  // Rows that see top_k positions or fewer take them all without a score.
  SliceShape scoring = shape;
  scoring.rows -=
      std::clamp(int64_t{indexer.top_k} - (shape.keys - shape.rows), int64_t{0}, shape.rows);
  double scored_bytes = 0;
  if (scoring.rows > 0)
    scored_bytes = CacheBytes(bench, shape, indexer.head_dim) +
                   static_cast<double>(inputs.queries.bytes()) * static_cast<double>(scoring.rows) /
                       static_cast<double>(shape.rows);
  return bench.Time(bench.ops().index_select, variants,
                    {.op = "index_select",
                     .shape = fmt::format("{} of {}, {} heads of {}", indexer.top_k,
                                          Describe(shape), indexer.heads, indexer.head_dim),
                     .flops = 2 * scoring.Pairs() *
                              static_cast<double>(int64_t{indexer.heads} * indexer.head_dim),
                     .bytes = scored_bytes + static_cast<double>(selected.bytes())});
}

base::Result<OpFigure> ProbeIndexCandidates(OpBench& bench, const SliceShape& shape,
                                            const spec::IndexerSpec& indexer) {
  constexpr int32_t kRanks = 2;
  SliceShape part = shape;
  part.keys = std::max(part.rows, shape.keys / kRanks);
  const IndexInputs inputs = MakeIndexInputs(bench, part, indexer);
  const int64_t rows = part.all_rows();
  const View scores = bench.Random(tensor::DType::kF32, {rows, indexer.top_k});
  const View positions = NoSelection(bench, rows, indexer.top_k);
  std::vector<ops::IndexCandidatesArgs> variants;
  for (const ops::StepTables& tables : bench.Tables(part, inputs.copies))
    variants.push_back({.queries = inputs.queries,
                        .head_weights = inputs.head_weights,
                        .index_cache = inputs.keys,
                        .tables = tables,
                        .page_indices = PageIndices(bench, tables, kRanks),
                        .scale = ScaleOf(indexer.head_dim),
                        .scores = scores,
                        .positions = positions});
  return bench.Time(
      bench.ops().index_candidates, variants,
      {.op = "index_candidates",
       .shape = fmt::format("{} of {}, {} heads of {}", indexer.top_k, Describe(part),
                            indexer.heads, indexer.head_dim),
       .flops = 2 * part.Pairs() * static_cast<double>(int64_t{indexer.heads} * indexer.head_dim),
       .bytes = CacheBytes(bench, part, indexer.head_dim) +
                static_cast<double>(inputs.queries.bytes() + scores.bytes() + positions.bytes())});
}

base::Result<OpFigure> ProbeIndexMerge(OpBench& bench, int64_t rows, int64_t top_k) {
  constexpr int64_t kParts = 2;
  std::vector<float> scores;
  std::vector<int32_t> positions;
  for (int64_t part = 0; part < kParts; ++part) {
    for (int64_t place = 0; place < rows * top_k; ++place) {
      const int64_t rank = kParts * (place % top_k) + part;  // the parts take turns
      scores.push_back(-static_cast<float>(rank));
      positions.push_back(static_cast<int32_t>(rank));
    }
  }
  const ops::IndexMergeArgs args = {
      .scores = bench.Numbers(scores, {kParts, rows, top_k}),
      .positions = bench.Indices(positions, {kParts, rows, top_k}),
      .counts =
          bench.Indices(std::vector<int32_t>(static_cast<size_t>(kParts * rows)), {kParts, rows})};
  return bench.Time<ops::IndexMergeArgs>(
      bench.ops().index_merge, {args},
      {.op = "index_merge",
       .shape = fmt::format("{} parts, {} of {}", kParts, top_k, rows),
       // As many are read as are taken.
       .bytes = static_cast<double>(rows * top_k * 8 + args.counts.bytes())});
}

base::Result<OpFigure> ProbeIndexTake(OpBench& bench, const SliceShape& shape, int64_t top_k) {
  const std::vector<int32_t> selected = Selections(shape, top_k);
  std::vector<int32_t> counts;
  for (int64_t row = 0; row < shape.all_rows(); ++row)
    counts.push_back(
        static_cast<int32_t>(std::min(top_k, shape.keys - shape.rows + 1 + row % shape.rows)));
  const std::vector<ops::StepTables> tables = bench.Tables(shape, 1);
  if (tables.empty()) return base::InvalidArgument("index_take: no tables");
  const ops::IndexTakeArgs args = {
      .counts = bench.Indices(counts, {shape.all_rows()}),
      .tables = tables[0],
      // The op works in place: with all pages there it finds what it has left.
      .page_indices = PageIndices(bench, tables[0], 1),
      .page_size = kPageSize,
      .positions = bench.Indices(selected, {shape.all_rows(), top_k})};
  return bench.Time<ops::IndexTakeArgs>(
      bench.ops().index_take, {args},
      {.op = "index_take",
       .shape = fmt::format("{} of {}", top_k, Describe(shape)),
       .bytes = static_cast<double>(2 * args.positions.bytes() + args.counts.bytes())});
}

base::Result<OpFigure> ProbeMergeAttention(OpBench& bench, int64_t rows, int64_t heads,
                                           int64_t dim) {
  constexpr int64_t kParts = 2;
  const View parts = bench.Random({kParts, rows, heads, dim});
  const View exp_sums = bench.Random(tensor::DType::kF32, {kParts, rows, heads, 2});
  const View out = bench.Random({rows, heads, dim});
  return bench.Time<ops::MergeAttentionArgs>(
      bench.ops().merge_attention, {{.parts = parts, .exp_sums = exp_sums, .out = out}},
      {.op = "merge_attention",
       .shape = fmt::format("{} parts, {} x {} heads of {}", kParts, rows, heads, dim),
       .bytes = static_cast<double>(parts.bytes() + exp_sums.bytes() + out.bytes())});
}

}  // namespace longspan::apps
