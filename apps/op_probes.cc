#include "apps/op_probes.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "apps/bench_run.h"
#include "base/clock.h"
#include "base/mix_bits.h"

namespace longspan::apps {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::View;

// So long must a timed run take at least, or the clock and the wait would count.
constexpr double kShortestRun = 0.02;
constexpr int64_t kPageSize = 64;
constexpr int64_t kBytes = 2;  // of an element

std::vector<Bf16> RandomValues(int64_t count) {
  std::vector<Bf16> values(static_cast<size_t>(count));
  uint64_t index = 0;
  for (Bf16& value : values)
    value = tensor::ToBf16(static_cast<float>(base::MixBits(++index) >> 40) * 0x1p-23f - 1);
  return values;
}

}  // namespace

base::Result<std::unique_ptr<OpProbes>> OpProbes::Create(const ops::Backend& backend,
                                                         const ops::QueueOptions& options,
                                                         int repeat) {
  std::unique_ptr<OpProbes> probes(new OpProbes(backend, repeat));
  LONGSPAN_ASSIGN_OR_RETURN(probes->queue_, backend.CreateQueue(options));
  return probes;
}

base::Result<View> OpProbes::Random(Memory& memory, DType type, Sizes sizes) {
  const View shape(nullptr, type, sizes);
  LONGSPAN_ASSIGN_OR_RETURN(auto buffer, backend_.Allocate(shape.bytes()));
  constexpr int64_t kPiece = (int64_t{1} << 22) - 3;  // no period of a row
  static const std::vector<Bf16> values = RandomValues(kPiece);
  for (int64_t begin = 0; begin < shape.elements(); begin += kPiece) {
    const int64_t count = std::min(kPiece, shape.elements() - begin);
    LONGSPAN_RETURN_IF_ERROR(backend_.Upload(*queue_, std::as_bytes(std::span(values).first(count)),
                                             buffer.ViewAt(begin * kBytes, type, {count})));
  }
  memory.buffers.push_back(std::move(buffer));
  return memory.buffers.back().AsView(type, sizes);
}

template <typename T>
base::Result<View> OpProbes::Table(Memory& memory, const std::vector<T>& values, Sizes sizes) {
  const View shape(nullptr, tensor::DTypeOf<T>::kValue, sizes);
  LONGSPAN_ASSIGN_OR_RETURN(auto buffer, backend_.Allocate(shape.bytes()));
  const View view = buffer.AsView(shape.dtype(), sizes);
  LONGSPAN_RETURN_IF_ERROR(backend_.Upload(*queue_, std::as_bytes(std::span(values)), view));
  memory.buffers.push_back(std::move(buffer));
  return view;
}

base::Result<std::unique_ptr<ops::PackedWeight>> OpProbes::Weight(int64_t rows, int64_t columns) {
  const std::vector<Bf16> values = RandomValues(rows * columns);
  const tensor::ConstView part(values.data(), DType::kBf16, {rows, columns});
  return backend_.Pack({.parts = {&part, 1}, .compute = DType::kBf16});
}

base::Result<tensor::Workspace> OpProbes::WorkspaceFor(const ops::WorkspaceShape& shape) {
  LONGSPAN_ASSIGN_OR_RETURN(auto memory,
                            backend_.Allocate(backend_.WorkspaceBytes(*queue_, shape)));
  return tensor::Workspace(std::move(memory));
}

base::Result<double> OpProbes::Time(const std::function<void()>& run) {
  const base::Clock& clock = base::SteadyClock();
  const auto timed = [&](int64_t times) -> base::Result<double> {
    const auto begin = clock.Now();
    for (int64_t i = 0; i < times; ++i) run();
    LONGSPAN_RETURN_IF_ERROR(queue_->Synchronize());
    return base::Seconds(clock.Now() - begin) / static_cast<double>(times);
  };
  LONGSPAN_RETURN_IF_ERROR(timed(2).status());
  LONGSPAN_ASSIGN_OR_RETURN(const double first, timed(1));
  const auto times = std::clamp<int64_t>(static_cast<int64_t>(kShortestRun / first), 1, 10000);
  std::vector<double> seconds;
  for (int i = 0; i < repeat_; ++i) {
    LONGSPAN_ASSIGN_OR_RETURN(const double each, timed(times));
    seconds.push_back(each);
  }
  return SpreadOf(std::move(seconds)).median;
}

base::Result<OpFigure> OpProbes::Product(int64_t rows, int64_t columns, int64_t n) {
  Memory memory;
  LONGSPAN_ASSIGN_OR_RETURN(const View x, Random(memory, DType::kBf16, {rows, columns}));
  LONGSPAN_ASSIGN_OR_RETURN(const View out, Random(memory, DType::kBf16, {rows, n}));
  LONGSPAN_ASSIGN_OR_RETURN(const auto weight, Weight(n, columns));
  LONGSPAN_ASSIGN_OR_RETURN(auto workspace, WorkspaceFor({.rows = rows, .max_columns = columns}));
  tensor::ExecutionContext context{*queue_, workspace};
  LONGSPAN_ASSIGN_OR_RETURN(const double seconds, Time([&] {
                              ops::Dispatch(
                                  context, backend_.ops().linear,
                                  {.x = x, .weight = weight.get(), .bias = {}, .out = out});
                            }));
  return OpFigure{.op = "linear",
                  .shape = fmt::format("{} x {} x {}", rows, columns, n),
                  .seconds = seconds,
                  .flops = 2.0 * static_cast<double>(rows * columns) * static_cast<double>(n),
                  .bytes = static_cast<double>(kBytes * (rows * columns + columns * n + rows * n))};
}

base::Result<OpFigure> OpProbes::GroupedProduct(int64_t rows, int64_t experts, int64_t choices,
                                                int64_t columns, int64_t n) {
  Memory memory;
  std::vector<std::unique_ptr<ops::PackedWeight>> owned;
  std::vector<const ops::PackedWeight*> weights;
  for (int64_t i = 0; i < experts; ++i) {
    LONGSPAN_ASSIGN_OR_RETURN(auto weight, Weight(n, columns));
    weights.push_back(weight.get());
    owned.push_back(std::move(weight));
  }
  std::vector<int32_t> ids;
  uint64_t index = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = static_cast<int64_t>(base::MixBits(++index) % experts);
    const auto step = static_cast<int64_t>(base::MixBits(++index) % (experts / choices)) + 1;
    for (int64_t choice = 0; choice < choices; ++choice)
      ids.push_back(static_cast<int32_t>((first + choice * step) % experts));
  }
  std::vector<bool> used(static_cast<size_t>(experts));
  for (const int32_t id : ids) used[static_cast<size_t>(id)] = true;
  const auto active = std::count(used.begin(), used.end(), true);
  const int64_t pairs = rows * choices;
  LONGSPAN_ASSIGN_OR_RETURN(const View expert_ids, Table(memory, ids, {rows, choices}));
  const std::vector<int32_t> zeros(static_cast<size_t>(std::max(pairs, experts + 1)));
  LONGSPAN_ASSIGN_OR_RETURN(
      const View begin,
      Table(memory, std::vector<int32_t>(zeros.begin(), zeros.begin() + experts + 1),
            {experts + 1}));
  const std::vector<int32_t> pair_zeros(zeros.begin(), zeros.begin() + pairs);
  LONGSPAN_ASSIGN_OR_RETURN(const View source, Table(memory, pair_zeros, {pairs}));
  LONGSPAN_ASSIGN_OR_RETURN(const View places, Table(memory, pair_zeros, {rows, choices}));
  LONGSPAN_ASSIGN_OR_RETURN(const View x, Random(memory, DType::kBf16, {rows, columns}));
  LONGSPAN_ASSIGN_OR_RETURN(const View out, Random(memory, DType::kBf16, {pairs, n}));
  LONGSPAN_ASSIGN_OR_RETURN(auto workspace, WorkspaceFor({.rows = rows,
                                                          .max_columns = columns,
                                                          .experts = experts,
                                                          .experts_per_token = choices}));
  tensor::ExecutionContext context{*queue_, workspace};
  ops::Dispatch(context, backend_.ops().expert_order,
                {.expert_ids = expert_ids,
                 .expert_begin = begin,
                 .source_rows = source,
                 .sorted_places = places});
  LONGSPAN_ASSIGN_OR_RETURN(
      const double seconds, Time([&] {
        ops::Dispatch(
            context, backend_.ops().grouped_linear,
            {.x = x, .weights = weights, .expert_begin = begin, .source_rows = source, .out = out});
      }));
  return OpFigure{
      .op = "grouped_linear",
      .shape = fmt::format("{} x {} of {} experts, {} x {}", rows, choices, experts, columns, n),
      .seconds = seconds,
      .flops = 2.0 * static_cast<double>(pairs * columns) * static_cast<double>(n),
      .bytes = static_cast<double>(kBytes * (rows * columns + active * columns * n + pairs * n))};
}

base::Result<OpFigure> OpProbes::Attention(const AttentionShape& shape) {
  Memory memory;
  const int64_t rows = shape.sequences * shape.queries;
  const int64_t pages = (shape.keys + kPageSize - 1) / kPageSize;
  const int64_t cache_pages = shape.sequences * pages;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> slice_begin = {0};
  std::vector<int32_t> page_table(static_cast<size_t>(cache_pages));
  std::iota(page_table.begin(), page_table.end(), 0);
  for (size_t i = page_table.size(); i > 1; --i)
    std::swap(page_table[i - 1], page_table[base::MixBits(i) % i]);
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (int64_t p = shape.keys - shape.queries; p < shape.keys; ++p) {
      positions.push_back(static_cast<int32_t>(p));
      const int64_t page = page_table[static_cast<size_t>(sequence * pages + p / kPageSize)];
      slots.push_back(page * kPageSize + p % kPageSize);
    }
    slice_begin.push_back(static_cast<int32_t>(positions.size()));
  }
  ops::StepTables tables{.rows = rows, .slices = shape.sequences, .max_kv_length = shape.keys};
  LONGSPAN_ASSIGN_OR_RETURN(tables.positions, Table(memory, positions, {rows}));
  LONGSPAN_ASSIGN_OR_RETURN(tables.slots, Table(memory, slots, {rows}));
  LONGSPAN_ASSIGN_OR_RETURN(tables.slice_row_begin,
                            Table(memory, slice_begin, {shape.sequences + 1}));
  LONGSPAN_ASSIGN_OR_RETURN(tables.page_table, Table(memory, page_table, {shape.sequences, pages}));
  const auto cache = [&] {
    return Random(memory, DType::kBf16, {cache_pages, shape.kv_heads, kPageSize, shape.head_dim});
  };
  LONGSPAN_ASSIGN_OR_RETURN(const View keys, cache());
  LONGSPAN_ASSIGN_OR_RETURN(const View values, cache());
  const auto heads = [&] {
    return Random(memory, DType::kBf16, {rows, shape.heads, shape.head_dim});
  };
  LONGSPAN_ASSIGN_OR_RETURN(const View queries, heads());
  LONGSPAN_ASSIGN_OR_RETURN(const View out, heads());
  LONGSPAN_ASSIGN_OR_RETURN(auto workspace, WorkspaceFor({.rows = rows,
                                                          .heads = shape.heads,
                                                          .kv_heads = shape.kv_heads,
                                                          .head_dim = shape.head_dim,
                                                          .page_size = kPageSize}));
  tensor::ExecutionContext context{*queue_, workspace};
  LONGSPAN_ASSIGN_OR_RETURN(const double seconds, Time([&] {
                              ops::Dispatch(context, backend_.ops().attention,
                                            {.queries = queries,
                                             .key_cache = keys,
                                             .value_cache = values,
                                             .tables = tables,
                                             .scale = 0.0884f,
                                             .out = out});
                            }));
  // Keys that the rows of a sequence attend to together.
  const int64_t seen =
      shape.queries * (shape.keys - shape.queries) + shape.queries * (shape.queries + 1) / 2;
  const int64_t width = shape.heads * shape.head_dim;
  return OpFigure{
      .op = "attention",
      .shape = fmt::format("{} x {} on {}, {}/{} heads of {}", shape.sequences, shape.queries,
                           shape.keys, shape.heads, shape.kv_heads, shape.head_dim),
      .seconds = seconds,
      .flops = 4.0 * static_cast<double>(shape.sequences * seen) * static_cast<double>(width),
      .bytes = static_cast<double>(
          2 * kBytes *
          (shape.sequences * shape.keys * shape.kv_heads * shape.head_dim + rows * width))};
}

}  // namespace longspan::apps
