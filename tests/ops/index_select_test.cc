// index_select.
#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/ops/compare.h"
#include "tests/support/paged_step.h"

namespace longspan::op_suite {
namespace {

using support::PagedStep;
using support::RandomValues;
using support::SliceRange;

class IndexSelectTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(IndexSelectTest);
INSTANTIATE_TEST_SUITE_P(, IndexSelectTest, testing::ValuesIn(ComparedBackends()), CaseName);

struct Shape {
  int64_t heads;
  int64_t dim;
  int64_t page_size;
  int64_t top_k;
};

constexpr Shape kShapes[] = {
    {4, 32, 16, 16}, {16, 128, 64, 100}, {3, 40, 16, 1}, {7, 16, 128, 250}};

const std::vector<SliceRange> kSlices = {{99, 100}, {64, 150}, {0, 1}, {5, 38}, {1250, 1290}};

std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths;
  for (const SliceRange& slice : kSlices) lengths.push_back(slice.end);
  return lengths;
}

struct Inputs {
  std::vector<float> queries;
  std::vector<float> head_weights;
  std::vector<float> keys;  // of the whole cache
  float scale;
};

Inputs MakeInputs(const BackendCase& c, const Shape& shape, const PagedStep& step, double range) {
  const DType product = c.compute == DType::kBf16 ? DType::kBf16 : c.kv_cache;
  return {RandomValues(step.rows() * shape.heads * shape.dim, 1, range, c.compute),
          RandomValues(step.rows() * shape.heads, 2, range),
          RandomValues(step.pages() * shape.page_size * shape.dim, 3, range, product), 0.25f};
}

std::vector<int32_t> Select(TestDevice& device, const Shape& shape, const PagedStep& step,
                            const Inputs& inputs, const BackendCase& types) {
  const ColumnSlice queries(device, inputs.queries, types.compute, shape.heads * shape.dim);
  const ColumnSlice weights(device, inputs.head_weights, DType::kF32, shape.heads);
  const std::vector<int32_t> marks(step.rows() * shape.top_k, 12345);
  const View selected = device.Ints(marks, {step.rows(), shape.top_k});
  device.Run(device.ops().index_select,
             {.queries = queries.view().SplitColumns(shape.heads, shape.dim),
              .head_weights = weights.view(),
              .index_cache = device.Floats(inputs.keys, types.kv_cache,
                                           {step.pages(), 1, shape.page_size, shape.dim}),
              .tables = step.Upload(device),
              .scale = inputs.scale,
              .selected = selected});
  return device.ReadInts(selected);
}

ops::WorkspaceShape Workspace(const Shape& shape, const PagedStep& step) {
  return {.rows = step.rows(),
          .page_size = shape.page_size,
          .index_heads = shape.heads,
          .index_dim = shape.dim,
          .index_top_k = shape.top_k};
}

// Small whole numbers: every order of the sums gives the same scores, many of them equal.
TEST_P(IndexSelectTest, ExactScoresMatchTheReference) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.top_k << " of " << shape.heads << " heads");
    const PagedStep step(kSlices, Lengths(), shape.page_size, 5);
    Devices devices(GetParam(), Workspace(shape, step));
    Inputs inputs = MakeInputs(GetParam(), shape, step, 2);
    for (auto* values : {&inputs.queries, &inputs.head_weights, &inputs.keys})
      for (float& value : *values) value = std::round(value);
    EXPECT_EQ(Select(devices.tested, shape, step, inputs, GetParam()),
              Select(devices.reference, shape, step, inputs, BackendCase()));
  }
}

TEST_P(IndexSelectTest, EqualAndUndefinedScoresMatchTheReference) {
  for (const Shape& shape : kShapes) {
    const PagedStep step(kSlices, Lengths(), shape.page_size, 5);
    Devices devices(GetParam(), Workspace(shape, step));
    Inputs inputs = MakeInputs(GetParam(), shape, step, 1);
    // Rows of equal scores of both signs of zero, and rows whose scores are not numbers.
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = 0; i < static_cast<int64_t>(inputs.head_weights.size()); ++i)
      inputs.head_weights[i] = i / shape.heads % 2 == 0 ? (i % 2 == 0 ? 0.0f : -0.0f) : kNan;
    EXPECT_EQ(Select(devices.tested, shape, step, inputs, GetParam()),
              Select(devices.reference, shape, step, inputs, BackendCase()));
  }
}

// Scores of one row, in double.
std::vector<double> Scores(const Shape& shape, const Inputs& inputs, int64_t row,
                           std::span<const int32_t> pages, int64_t length) {
  std::vector<double> scores(length);
  for (int64_t position = 0; position < length; ++position) {
    const int64_t slot =
        pages[position / shape.page_size] * shape.page_size + position % shape.page_size;
    for (int64_t head = 0; head < shape.heads; ++head) {
      const float* query = inputs.queries.data() + (row * shape.heads + head) * shape.dim;
      const double dot =
          std::inner_product(query, query + shape.dim, inputs.keys.data() + slot * shape.dim, 0.0);
      scores[position] += inputs.head_weights[row * shape.heads + head] *
                          std::max(0.0, static_cast<double>(inputs.scale) * dot);
    }
  }
  return scores;
}

TEST_P(IndexSelectTest, SelectsTheBestUpToRounding) {
  for (const Shape& shape : kShapes) {
    const PagedStep step(kSlices, Lengths(), shape.page_size, 5);
    TestDevice device(*GetParam().backend, 2, Workspace(shape, step));
    const Inputs inputs = MakeInputs(GetParam(), shape, step, 1);
    const auto got = Select(device, shape, step, inputs, GetParam());
    const auto tables = step.Upload(device);
    const auto page_table = device.ReadInts(tables.page_table);
    // Sums of dim, of heads; two products. All inputs are at most 1.
    const double error = Gamma(shape.dim + shape.heads + 3) * inputs.scale *
                         static_cast<double>(shape.dim * shape.heads);
    int64_t row = 0;
    for (size_t slice = 0; slice < kSlices.size(); ++slice) {
      const auto pages = std::span(page_table).subspan(slice * tables.page_table.size(1));
      for (int64_t length = kSlices[slice].begin + 1; length <= kSlices[slice].end; ++length) {
        SCOPED_TRACE(testing::Message()
                     << "row " << row << ", " << shape.top_k << " of " << length);
        const auto* list = got.data() + row * shape.top_k;
        const int64_t count = std::min(length, shape.top_k);
        ASSERT_EQ(std::adjacent_find(list, list + count, std::greater_equal<>()), list + count);
        ASSERT_TRUE(list[0] >= 0 && list[count - 1] < length);
        ASSERT_EQ(std::count(list + count, list + shape.top_k, -1), shape.top_k - count);
        const auto scores = Scores(shape, inputs, row, pages, length);
        auto sorted = scores;
        std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(),
                         std::greater<>());
        for (int64_t i = 0; i < count; ++i)
          ASSERT_GE(scores[list[i]], sorted[count - 1] - 2 * error) << "position " << list[i];
        ++row;
      }
    }
  }
}

}  // namespace
}  // namespace longspan::op_suite
