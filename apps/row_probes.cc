// Probes of the ops that compute little beside what they move.
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "apps/op_probes.h"
#include "base/mix_bits.h"

namespace longspan::apps {
namespace {

using tensor::DType;
using tensor::View;

double Bytes(std::initializer_list<tensor::ConstView> views) {
  int64_t sum = 0;
  for (const tensor::ConstView& view : views) sum += view.bytes();
  return static_cast<double>(sum);
}

std::string Shape(int64_t rows, int64_t columns) { return fmt::format("{} x {}", rows, columns); }

std::string HeadsText(int64_t rows, int64_t heads, int64_t dim) {
  return fmt::format("{} x {} heads of {}", rows, heads, dim);
}

std::vector<int32_t> RandomIndices(int64_t count, int64_t below) {
  std::vector<int32_t> indices(static_cast<size_t>(count));
  uint64_t index = 0;
  for (int32_t& value : indices)
    value = static_cast<int32_t>(base::MixBits(++index) % static_cast<uint64_t>(below));
  return indices;
}

View Zeros(OpBench& bench, int64_t rows, int64_t columns) {
  return bench.Indices(std::vector<int32_t>(static_cast<size_t>(rows * columns)), {rows, columns});
}

}  // namespace

base::Result<OpFigure> ProbeEmbedding(OpBench& bench, int64_t rows, int64_t vocab, int64_t hidden) {
  const View table = bench.Random({vocab, hidden});
  const View tokens = bench.Indices(RandomIndices(rows, vocab), {rows});
  const View out = bench.Random({rows, hidden});
  return bench.Time<ops::EmbeddingArgs>(
      bench.ops().embedding, {{.table = table, .tokens = tokens, .out = out}},
      {.op = "embedding", .shape = Shape(rows, hidden), .bytes = 2 * Bytes({out})});
}

base::Result<OpFigure> ProbeGatherRows(OpBench& bench, int64_t rows, int64_t columns) {
  const View x = bench.Random({rows, columns});
  const View index = bench.Indices(RandomIndices(rows, rows), {rows});
  const View out = bench.Random({rows, columns});
  return bench.Time<ops::GatherRowsArgs>(
      bench.ops().gather_rows, {{.x = x, .index = index, .out = out}},
      {.op = "gather_rows", .shape = Shape(rows, columns), .bytes = Bytes({x, out})});
}

base::Result<OpFigure> ProbeRmsNorm(OpBench& bench, int64_t rows, int64_t heads, int64_t dim) {
  const View x = bench.Random({rows, heads, dim});
  const View weight = bench.Random(DType::kF32, {dim});
  const View out = bench.Random({rows, heads, dim});
  return bench.Time<ops::RmsNormArgs>(
      bench.ops().rms_norm, {{.x = x, .weight = weight, .out = out}},
      {.op = "rms_norm",
       .shape = heads == 1 ? Shape(rows, dim) : HeadsText(rows, heads, dim),
       .bytes = Bytes({x, weight, out})});
}

base::Result<OpFigure> ProbeLayerNorm(OpBench& bench, int64_t rows, int64_t dim) {
  const View x = bench.Random({rows, dim});
  const View weight = bench.Random(DType::kF32, {dim});
  const View bias = bench.Random(DType::kF32, {dim});
  const View out = bench.Random({rows, dim});
  return bench.Time<ops::LayerNormArgs>(
      bench.ops().layer_norm, {{.x = x, .weight = weight, .bias = bias, .out = out}},
      {.op = "layer_norm", .shape = Shape(rows, dim), .bytes = Bytes({x, weight, bias, out})});
}

base::Result<OpFigure> ProbeAdd(OpBench& bench, int64_t rows, int64_t columns) {
  const View x = bench.Random({rows, columns});
  const View y = bench.Random({rows, columns});
  return bench.Time<ops::AddArgs>(
      bench.ops().add, {{.x = x, .y = y}},
      {.op = "add", .shape = Shape(rows, columns), .bytes = Bytes({x, x, y})});
}

base::Result<OpFigure> ProbeRopeTable(OpBench& bench, int64_t rows, int64_t dim) {
  const View positions = bench.Indices(RandomIndices(rows, 100000), {rows});
  const View frequencies = bench.Random(DType::kF32, {dim / 2});
  const View cosines = bench.Random(DType::kF32, {rows, dim / 2});
  const View sines = bench.Random(DType::kF32, {rows, dim / 2});
  return bench.Time<ops::RopeTableArgs>(
      bench.ops().rope_table,
      {{.positions = positions,
        .inverse_frequencies = frequencies,
        .cosines = cosines,
        .sines = sines}},
      {.op = "rope_table", .shape = Shape(rows, dim), .bytes = Bytes({cosines, sines})});
}

base::Result<OpFigure> ProbeRope(OpBench& bench, int64_t rows, int64_t heads, int64_t dim,
                                 spec::RopePairs pairs) {
  // Rotations, not what random factors would make of x after a thousand rounds.
  const std::vector<float> cosine(static_cast<size_t>(rows * dim / 2), 0.6f);
  const std::vector<float> sine(cosine.size(), 0.8f);
  const View x = bench.Random({rows, heads, dim});
  const View cosines = bench.Numbers(cosine, {rows, dim / 2});
  const View sines = bench.Numbers(sine, {rows, dim / 2});
  return bench.Time<ops::RopeArgs>(
      bench.ops().rope, {{.x = x, .cosines = cosines, .sines = sines, .pairs = pairs}},
      {.op = "rope", .shape = HeadsText(rows, heads, dim), .bytes = Bytes({x, x, cosines, sines})});
}

base::Result<OpFigure> ProbeCacheWrite(OpBench& bench, const SliceShape& shape, int64_t heads,
                                       int64_t dim) {
  const int64_t rows = shape.all_rows();
  const View x = bench.Random({rows, heads, dim});
  const ops::StepTables tables = bench.Tables(shape, 1).front();
  const View cache = bench.Random({OpBench::PagesOf(shape, 1), heads, OpBench::kPageSize, dim});
  return bench.Time<ops::CacheWriteArgs>(
      bench.ops().cache_write, {{.x = x, .slots = tables.slots, .cache = cache}},
      {.op = "cache_write", .shape = HeadsText(rows, heads, dim), .bytes = 2 * Bytes({x})});
}

base::Result<OpFigure> ProbeSiluMul(OpBench& bench, int64_t rows, int64_t columns) {
  const View gate_up = bench.Random({rows, 2 * columns});
  const View out = bench.Random({rows, columns});
  return bench.Time<ops::SiluMulArgs>(
      bench.ops().silu_mul, {{.gate_up = gate_up, .out = out}},
      {.op = "silu_mul", .shape = Shape(rows, columns), .bytes = Bytes({gate_up, out})});
}

base::Result<OpFigure> ProbeRouter(OpBench& bench, int64_t rows, const spec::MoeSpec& moe) {
  bench.Reserve({.rows = rows, .experts = moe.experts, .experts_per_token = moe.experts_per_token});
  const View logits = bench.Random(DType::kF32, {rows, moe.experts});
  View bias;
  if (moe.correction_bias) bias = bench.Random(DType::kF32, {moe.experts});
  const View ids = Zeros(bench, rows, moe.experts_per_token);
  const View weights = bench.Random(DType::kF32, {rows, moe.experts_per_token});
  return bench.Time<ops::RouterArgs>(
      bench.ops().router,
      {{.logits = logits,
        .scoring = moe.scoring,
        .bias = bias,
        .groups = moe.groups,
        .groups_kept = moe.groups_kept,
        .normalize_weights = moe.normalize_weights,
        .scale = static_cast<float>(moe.scale),
        .expert_ids = ids,
        .expert_weights = weights}},
      {.op = "router",
       .shape = fmt::format("{} x {} of {} experts", rows, moe.experts_per_token, moe.experts),
       .bytes = Bytes({logits, ids, weights})});
}

base::Result<OpFigure> ProbeExpertOrder(OpBench& bench, const ExpertsShape& shape) {
  const auto [rows, experts, choices] = shape;
  bench.Reserve({.rows = rows, .experts = experts, .experts_per_token = choices});
  const View ids = bench.Indices(RandomExperts(shape), {rows, choices});
  const View begin = Zeros(bench, experts + 1, 1);
  const View source = Zeros(bench, rows * choices, 1);
  const View places = Zeros(bench, rows, choices);
  return bench.Time<ops::ExpertOrderArgs>(
      bench.ops().expert_order,
      {{.expert_ids = ids,
        .expert_begin = tensor::View(begin.raw(), DType::kI32, {experts + 1}),
        .source_rows = tensor::View(source.raw(), DType::kI32, {rows * choices}),
        .sorted_places = places}},
      {.op = "expert_order",
       .shape = fmt::format("{} x {} of {} experts", rows, choices, experts),
       .bytes = Bytes({ids, source, places})});
}

base::Result<OpFigure> ProbeExpertCombine(OpBench& bench, const ExpertsShape& shape,
                                          int64_t columns) {
  const auto [rows, experts, choices] = shape;
  std::vector<int32_t> order(static_cast<size_t>(rows * choices));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[base::MixBits(i) % i]);
  const View x = bench.Random({rows * choices, columns});
  const View places = bench.Indices(order, {rows, choices});
  const View weights = bench.Random(DType::kF32, {rows, choices});
  const View out = bench.Random({rows, columns});
  return bench.Time<ops::ExpertCombineArgs>(
      bench.ops().expert_combine,
      {{.x = x, .sorted_places = places, .expert_weights = weights, .out = out}},
      {.op = "expert_combine",
       .shape = fmt::format("{} x {} choices x {}", rows, choices, columns),
       .bytes = Bytes({x, places, weights, out})});
}

base::Result<OpFigure> ProbeSample(OpBench& bench, int64_t rows, int64_t vocab) {
  bench.Reserve({.rows = rows, .logit_rows = rows, .vocab_size = vocab});
  const auto count = static_cast<size_t>(rows);
  const View logits = bench.Random(DType::kF32, {rows, vocab});
  const View ones = bench.Numbers(std::vector<float>(count, 1), {rows});
  const View zeros = bench.Numbers(std::vector<float>(count, 0), {rows});
  const View no_top_k = bench.Indices(std::vector<int32_t>(count), {rows});
  const View wide_zeros = bench.WideIndices(std::vector<int64_t>(count), {rows});
  const View no_history = bench.Indices(std::vector<int32_t>(count + 1), {rows + 1});
  const View tokens = bench.Indices(std::vector<int32_t>(count), {rows});
  const View logprobs = bench.Random(DType::kF32, {rows});
  return bench.Time<ops::SampleArgs>(
      bench.ops().sample,
      {{.logits = logits,
        .tables = {.temperature = ones,
                   .top_k = no_top_k,
                   .top_p = ones,
                   .min_p = zeros,
                   .seed = wide_zeros,
                   .position = wide_zeros,
                   .repetition_penalty = ones,
                   .frequency_penalty = zeros,
                   .presence_penalty = zeros,
                   .history_begin = no_history,
                   .history_tokens = {},
                   .history_counts = {}},
        .column_tokens = {},
        .tokens = tokens,
        .logprobs = logprobs}},
      {.op = "sample", .shape = Shape(rows, vocab), .bytes = Bytes({logits})});
}

base::Result<OpFigure> ProbeTokenLogprob(OpBench& bench, int64_t rows, int64_t vocab) {
  bench.Reserve({.rows = rows, .logit_rows = rows, .vocab_size = vocab});
  const View logits = bench.Random(DType::kF32, {rows, vocab});
  const View tokens = bench.Indices(RandomIndices(rows, vocab), {rows});
  const View logprobs = bench.Random(DType::kF32, {rows});
  return bench.Time<ops::TokenLogprobArgs>(
      bench.ops().token_logprob, {{.logits = logits, .tokens = tokens, .logprobs = logprobs}},
      {.op = "token_logprob", .shape = Shape(rows, vocab), .bytes = Bytes({logits})});
}

base::Result<OpFigure> ProbeTopLogprobs(OpBench& bench, int64_t rows, int64_t vocab,
                                        int64_t count) {
  bench.Reserve({.rows = rows, .logit_rows = rows, .vocab_size = vocab});
  const View logits = bench.Random(DType::kF32, {rows, vocab});
  const View tokens = Zeros(bench, rows, count);
  const View logprobs = bench.Random(DType::kF32, {rows, count});
  return bench.Time<ops::TopLogprobsArgs>(
      bench.ops().top_logprobs, {{.logits = logits, .tokens = tokens, .logprobs = logprobs}},
      {.op = "top_logprobs",
       .shape = fmt::format("{} of {}", count, Shape(rows, vocab)),
       .bytes = Bytes({logits})});
}

base::Result<OpFigure> ProbeTopLogits(OpBench& bench, int64_t rows, int64_t vocab, int64_t count) {
  bench.Reserve({.rows = rows, .logit_rows = rows, .vocab_size = vocab});
  const View logits = bench.Random(DType::kF32, {rows, vocab});
  const View tokens = Zeros(bench, rows, count);
  const View values = bench.Random(DType::kF32, {rows, count});
  const View log_sums = bench.Random(DType::kF32, {rows});
  return bench.Time<ops::TopLogitsArgs>(
      bench.ops().top_logits,
      {{.logits = logits, .tokens = tokens, .values = values, .log_sums = log_sums}},
      {.op = "top_logits",
       .shape = fmt::format("{} of {}", count, Shape(rows, vocab)),
       .bytes = Bytes({logits})});
}

}  // namespace longspan::apps
