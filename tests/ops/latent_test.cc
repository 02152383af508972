// latent_attention, dense and to selected positions.
#include <algorithm>
#include <limits>

#include "tests/ops/compare.h"
#include "tests/support/paged_step.h"

namespace longspan::op_suite {
namespace {

using support::PagedStep;
using support::RandomValues;
using support::SliceRange;

class LatentTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LatentTest);
INSTANTIATE_TEST_SUITE_P(, LatentTest, testing::ValuesIn(ComparedBackends()), CaseName);

struct Shape {
  int64_t heads;
  int64_t rank;
  int64_t rope;
  int64_t page_size;
};

// The last has more heads than rows of a tile for one token's task.
constexpr Shape kShapes[] = {
    {6, 64, 16, 16}, {16, 512, 64, 64}, {4, 16, 40, 16}, {1, 72, 8, 64}, {80, 32, 16, 128}};

struct Steps {
  const char* name;
  std::vector<SliceRange> slices;
};

const std::vector<Steps>& AllSteps() {
  static const std::vector<Steps> steps = {
      {"one token", {{0, 1}}},
      {"a chunk that begins inside a page", {{37, 150}}},
      {"one decoding row", {{299, 300}}},
      {"decoding rows and chunks", {{99, 100}, {64, 150}, {0, 1}, {5, 38}, {250, 251}}},
  };
  return steps;
}

std::vector<int64_t> Lengths(const Steps& steps) {
  std::vector<int64_t> lengths;
  for (const SliceRange& slice : steps.slices) lengths.push_back(slice.end);
  return lengths;
}

// Positions that every row may see.
std::vector<int64_t> Visible(const Steps& steps) {
  std::vector<int64_t> visible;
  for (const SliceRange& slice : steps.slices)
    for (int64_t position = slice.begin; position < slice.end; ++position)
      visible.push_back(position + 1);
  return visible;
}

// A random list for every row.
std::vector<int32_t> RandomLists(const Steps& steps, int64_t top_k) {
  std::vector<int32_t> lists;
  for (const int64_t visible : Visible(steps)) {
    auto list = support::RandomPermutation(visible, lists.size());
    list.resize(std::min(visible, top_k));
    std::sort(list.begin(), list.end());
    list.resize(top_k, -1);
    lists.insert(lists.end(), list.begin(), list.end());
  }
  return lists;
}

struct Inputs {
  std::vector<float> latent_queries;
  std::vector<float> rope_queries;
  std::vector<float> latents;  // of the whole cache
  std::vector<float> rope_keys;
  float scale;
  int64_t top_k;  // 0: no lists
  std::vector<int32_t> selected;
};

Inputs MakeInputs(const BackendCase& c, const Shape& shape, const PagedStep& step,
                  double query_scale) {
  // Products are of the compute type, also where the cache holds more.
  const DType product = c.compute == DType::kBf16 ? DType::kBf16 : c.kv_cache;
  const int64_t rows = step.rows() * shape.heads;
  const int64_t slots = step.pages() * shape.page_size;
  return {RandomValues(rows * shape.rank, 1, query_scale, c.compute),
          RandomValues(rows * shape.rope, 2, query_scale, c.compute),
          RandomValues(slots * shape.rank, 3, 1, product),
          RandomValues(slots * shape.rope, 4, 1, product),
          static_cast<float>(1 / std::sqrt(static_cast<double>(shape.rank + shape.rope))),
          0,
          {}};
}

std::vector<float> Attend(TestDevice& device, const Shape& shape, const PagedStep& step,
                          const Inputs& inputs, const BackendCase& types) {
  const int64_t rank_width = shape.heads * shape.rank;
  const int64_t rope_width = shape.heads * shape.rope;
  const ColumnSlice latent_queries(device, inputs.latent_queries, types.compute, rank_width);
  const ColumnSlice rope_queries(device, inputs.rope_queries, types.compute, rope_width);
  const std::vector<float> marks(inputs.latent_queries.size(), ColumnSlice::kMark);
  const ColumnSlice out(device, marks, types.compute, rank_width);
  const auto cache = [&](std::span<const float> values, int64_t dim) {
    return device.Floats(values, types.kv_cache, {step.pages(), 1, shape.page_size, dim});
  };
  device.Run(
      device.ops().latent_attention,
      {.latent_queries = latent_queries.view().SplitColumns(shape.heads, shape.rank),
       .rope_queries = rope_queries.view().SplitColumns(shape.heads, shape.rope),
       .latent_cache = cache(inputs.latents, shape.rank),
       .rope_cache = cache(inputs.rope_keys, shape.rope),
       .tables = step.Upload(device),
       .scale = inputs.scale,
       .selected = inputs.top_k == 0 ? ConstView()
                                     : device.Ints(inputs.selected, {step.rows(), inputs.top_k}),
       .out = out.view().SplitColumns(shape.heads, shape.rank)});
  out.ExpectMarks();
  return device.ReadFloats(out.view());
}

ops::WorkspaceShape Workspace(const Shape& shape, const PagedStep& step) {
  return {.rows = step.rows(),
          .heads = shape.heads,
          .page_size = shape.page_size,
          .latent_rank = shape.rank,
          .latent_rope_dim = shape.rope};
}

void Compare(const BackendCase& c, const Shape& shape, const Steps& steps, double query_scale,
             int64_t top_k, bool deterministic = true) {
  SCOPED_TRACE(testing::Message() << steps.name << ", " << shape.heads << " heads of " << shape.rank
                                  << " + " << shape.rope << ", queries to " << query_scale << ", "
                                  << top_k << " selected");
  const PagedStep step(steps.slices, Lengths(steps), shape.page_size, 5);
  Devices devices(c, Workspace(shape, step));
  devices.tested.context().deterministic = deterministic;
  Inputs inputs = MakeInputs(c, shape, step, query_scale);
  inputs.top_k = top_k;
  if (top_k > 0) inputs.selected = RandomLists(steps, top_k);
  const BackendCase f32;
  const auto got = Attend(devices.tested, shape, step, inputs, c);
  const auto want = Attend(devices.reference, shape, step, inputs, f32);
  // |k| <= 1, and a mean of |v| is at most 1 too.
  const double score = inputs.scale * query_scale * static_cast<double>(shape.rank + shape.rope);
  const std::vector<int64_t> visible = Visible(steps);
  const int64_t width = shape.heads * shape.rank;
  ExpectWithin(got, want, [&](int64_t i) {
    const int64_t length = visible[i / width];
    return Attention(want[i],
                     {.head_dim = shape.rank + shape.rope,
                      .length = top_k > 0 ? std::min(length, top_k) : length,
                      .score_magnitude = score,
                      .value_magnitude = 1},
                     c.compute, c.compute == DType::kBf16);
  });
}

TEST_P(LatentTest, DenseMatchesTheReference) {
  for (const Shape& shape : kShapes)
    for (const Steps& steps : AllSteps()) Compare(GetParam(), shape, steps, 1, 0);
}

TEST_P(LatentTest, SharpSoftmaxMatchesTheReference) {
  for (const Shape& shape : kShapes) Compare(GetParam(), shape, AllSteps().back(), 10, 0);
}

TEST_P(LatentTest, SelectedPositionsMatchTheReference) {
  for (const Shape& shape : kShapes)
    for (const Steps& steps : AllSteps())
      for (const int64_t top_k : {1, 24, 140}) Compare(GetParam(), shape, steps, 1, top_k);
}

// Where bits may depend on the step, a backend may cut contexts into parts.
TEST_P(LatentTest, AnyOrderOfSumsMatchesTheReference) {
  const Steps rows = {"long decoding rows and a chunk",
                      {{1299, 1300}, {0, 1}, {40, 42}, {700, 701}}};
  for (const Shape& shape : kShapes)
    for (const int64_t top_k : {0, 200})
      Compare(GetParam(), shape, rows, 1, top_k, /*deterministic=*/false);
}

TEST_P(LatentTest, ListsOfAllPositionsChangeNothing) {
  const BackendCase& c = GetParam();
  for (const Shape& shape : kShapes) {
    const Steps& steps = AllSteps().back();
    const PagedStep step(steps.slices, Lengths(steps), shape.page_size, 5);
    TestDevice device(*c.backend, 2, Workspace(shape, step));
    Inputs inputs = MakeInputs(c, shape, step, 3);
    const auto dense = Attend(device, shape, step, inputs, c);
    inputs.top_k = 260;
    inputs.selected = RandomLists(steps, inputs.top_k);
    EXPECT_EQ(Attend(device, shape, step, inputs, c), dense);
  }
}

TEST_P(LatentTest, WhatIsNotSelectedIsNotRead) {
  const BackendCase& c = GetParam();
  const Shape shape = {6, 64, 16, 16};
  const Steps steps = {"decoding rows", {{299, 300}, {40, 41}}};
  const PagedStep step(steps.slices, Lengths(steps), shape.page_size, 5);
  TestDevice device(*c.backend, 2, Workspace(shape, step));
  Inputs inputs = MakeInputs(c, shape, step, 1);
  inputs.top_k = 50;
  inputs.selected = RandomLists(steps, inputs.top_k);
  const auto want = Attend(device, shape, step, inputs, c);

  const auto tables = step.Upload(device);
  const auto pages = device.ReadInts(tables.page_table);
  std::vector<bool> selected(step.pages() * shape.page_size);
  for (int64_t i = 0; i < static_cast<int64_t>(inputs.selected.size()); ++i) {
    const int64_t position = inputs.selected[i];
    if (position < 0) continue;
    const int64_t slice = i / inputs.top_k;  // one row each
    const int64_t page = pages[slice * tables.page_table.size(1) + position / shape.page_size];
    selected[page * shape.page_size + position % shape.page_size] = true;
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (size_t slot = 0; slot < selected.size(); ++slot) {
    if (selected[slot]) continue;
    std::fill_n(inputs.latents.begin() + slot * shape.rank, shape.rank, kNan);
    std::fill_n(inputs.rope_keys.begin() + slot * shape.rope, shape.rope, kNan);
  }
  EXPECT_EQ(Attend(device, shape, step, inputs, c), want);
}

}  // namespace
}  // namespace longspan::op_suite
