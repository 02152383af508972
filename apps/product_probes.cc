// Probes of the products.
#include <algorithm>

#include <fmt/format.h>

#include "apps/op_probes.h"
#include "base/mix_bits.h"

namespace longspan::apps {
namespace {

using tensor::DType;
using tensor::View;

// With so many rows a product takes longer than its weights' way from memory.
constexpr int64_t kFewRows = 64;

double Product(int64_t a, int64_t b, int64_t c) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

}  // namespace

std::vector<int32_t> RandomExperts(const ExpertsShape& shape) {
  std::vector<int32_t> ids;
  uint64_t index = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(base::MixBits(++index) % static_cast<uint64_t>(below));
  };
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t first = draw(shape.experts);
    const int64_t step = draw(shape.experts / shape.choices) + 1;
    for (int64_t choice = 0; choice < shape.choices; ++choice)
      ids.push_back(static_cast<int32_t>((first + choice * step) % shape.experts));
  }
  return ids;
}

base::Result<OpFigure> ProbeLinear(OpBench& bench, int64_t rows, int64_t columns, int64_t n,
                                   DType out) {
  const int64_t element = tensor::SizeOf(bench.type());
  const int64_t copies =
      rows < kFewRows ? bench.CopiesBeyondCaches(columns * n * element) : int64_t{1};
  bench.Reserve({.rows = rows, .max_columns = columns});
  const View x = bench.Random({rows, columns});
  const View result = bench.Random(out, {rows, n});
  std::vector<ops::LinearArgs> variants;
  for (const ops::PackedWeight* weight : bench.Weights(copies, n, columns))
    variants.push_back({.x = x, .weight = weight, .bias = {}, .out = result});
  return bench.Time(
      bench.ops().linear, variants,
      {.op = "linear",
       .shape = fmt::format("{} x {} x {}", rows, columns, n),
       .flops = 2 * Product(rows, columns, n),
       .bytes = static_cast<double>(x.bytes() + columns * n * element + result.bytes())});
}

base::Result<OpFigure> ProbeGroupedLinear(OpBench& bench, const ExpertsShape& shape,
                                          int64_t columns, int64_t n) {
  const auto [rows, experts, choices] = shape;
  const int64_t pairs = rows * choices;
  const int64_t element = tensor::SizeOf(bench.type());
  bench.Reserve(
      {.rows = rows, .max_columns = columns, .experts = experts, .experts_per_token = choices});
  const std::vector<int32_t> ids = RandomExperts(shape);
  std::vector<bool> used(static_cast<size_t>(experts));
  for (const int32_t id : ids) used[static_cast<size_t>(id)] = true;
  const auto active = std::count(used.begin(), used.end(), true);
  // Of experts that few rows chose, other ones are read the next time.
  const int64_t copies =
      pairs < kFewRows ? bench.CopiesBeyondCaches(experts * columns * n * element) : int64_t{1};
  const View expert_ids = bench.Indices(ids, {rows, choices});
  const View begin =
      bench.Indices(std::vector<int32_t>(static_cast<size_t>(experts + 1)), {experts + 1});
  const std::vector<int32_t> zeros(static_cast<size_t>(pairs));
  const View source = bench.Indices(zeros, {pairs});
  const View places = bench.Indices(zeros, {rows, choices});
  bench.Run(bench.ops().expert_order, {.expert_ids = expert_ids,
                                       .expert_begin = begin,
                                       .source_rows = source,
                                       .sorted_places = places});
  const View x = bench.Random({rows, columns});
  const View out = bench.Random({pairs, n});
  const auto weights = bench.Weights(copies * experts, n, columns);
  std::vector<ops::GroupedLinearArgs> variants;
  for (int64_t copy = 0; copy < copies; ++copy)
    variants.push_back({.x = x,
                        .weights = std::span(weights).subspan(static_cast<size_t>(copy * experts),
                                                              static_cast<size_t>(experts)),
                        .expert_begin = begin,
                        .source_rows = source,
                        .out = out});
  return bench.Time(
      bench.ops().grouped_linear, variants,
      {.op = "grouped_linear",
       .shape = fmt::format("{} x {} of {} experts, {} x {}", rows, choices, experts, columns, n),
       .flops = 2 * Product(pairs, columns, n),
       .bytes = static_cast<double>(x.bytes() + active * columns * n * element + out.bytes())});
}

base::Result<OpFigure> ProbeHeadLinear(OpBench& bench, int64_t rows, int64_t heads, int64_t columns,
                                       int64_t n) {
  const int64_t weight_bytes = heads * columns * n * tensor::SizeOf(bench.type());
  const int64_t copies = rows < kFewRows ? bench.CopiesBeyondCaches(weight_bytes) : int64_t{1};
  bench.Reserve({.rows = rows, .heads = heads, .max_columns = columns});
  const View x = bench.Random({rows, heads, columns});
  const View out = bench.Random({rows, heads, n});
  const auto weights = bench.Weights(copies * heads, n, columns);
  std::vector<ops::HeadLinearArgs> variants;
  for (int64_t copy = 0; copy < copies; ++copy)
    variants.push_back({.x = x,
                        .weights = std::span(weights).subspan(static_cast<size_t>(copy * heads),
                                                              static_cast<size_t>(heads)),
                        .out = out});
  return bench.Time(bench.ops().head_linear, variants,
                    {.op = "head_linear",
                     .shape = fmt::format("{} x {} heads, {} x {}", rows, heads, columns, n),
                     .flops = 2 * Product(rows * heads, columns, n),
                     .bytes = static_cast<double>(x.bytes() + weight_bytes + out.bytes())});
}

}  // namespace longspan::apps
