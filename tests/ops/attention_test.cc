// cache_write and attention over a paged cache.
#include <algorithm>

#include "tests/ops/compare.h"
#include "tests/support/paged_step.h"

namespace longspan::op_suite {
namespace {

using support::PagedStep;
using support::RandomValues;
using support::SliceRange;

class AttentionTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionTest);
INSTANTIATE_TEST_SUITE_P(, AttentionTest, testing::ValuesIn(ComparedBackends()), CaseName);

struct Shape {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t page_size;
};

constexpr Shape kShapes[] = {{6, 2, 16, 16}, {6, 2, 64, 64}, {8, 2, 128, 64},
                             {1, 1, 80, 16}, {4, 4, 40, 64}, {12, 1, 128, 16}};

struct Steps {
  const char* name;
  std::vector<SliceRange> slices;
};

const std::vector<Steps>& AllSteps() {
  static const std::vector<Steps> steps = {
      {"one token", {{0, 1}}},
      {"a whole prompt", {{0, 130}}},
      {"a chunk that begins inside a page", {{37, 101}}},
      {"one decoding row", {{299, 300}}},
      {"decoding rows", {{15, 16}, {16, 17}, {63, 64}, {64, 65}, {200, 201}}},
      {"decoding rows and chunks", {{99, 100}, {64, 150}, {0, 1}, {5, 38}, {250, 251}}},
  };
  return steps;
}

struct Inputs {
  std::vector<float> queries;
  std::vector<float> keys;  // of the whole cache
  std::vector<float> values;
  float scale;
};

std::vector<float> Attend(TestDevice& device, const Shape& shape, const PagedStep& step,
                          const Inputs& inputs, const BackendCase& types) {
  // As a fused projection leaves them: queries are columns of a wider matrix.
  const int64_t width = shape.heads * shape.head_dim;
  const ColumnSlice queries(device, inputs.queries, types.compute, width);
  const std::vector<float> marks(inputs.queries.size(), ColumnSlice::kMark);
  const ColumnSlice out(device, marks, types.compute, width);
  const auto cache = [&](std::span<const float> values) {
    return device.Floats(values, types.kv_cache,
                         {step.pages(), shape.kv_heads, shape.page_size, shape.head_dim});
  };
  device.Run(device.ops().attention,
             {.queries = queries.view().SplitColumns(shape.heads, shape.head_dim),
              .key_cache = cache(inputs.keys),
              .value_cache = cache(inputs.values),
              .tables = step.Upload(device),
              .scale = inputs.scale,
              .out = out.view().SplitColumns(shape.heads, shape.head_dim)});
  out.ExpectMarks();
  return device.ReadFloats(out.view());
}

// scale * sum |q| |k| of every (row, head), at most.
std::vector<double> ScoreMagnitudes(const Inputs& inputs, int64_t head_dim) {
  double key = 0;
  for (const float value : inputs.keys) key = std::max<double>(key, std::abs(value));
  std::vector<double> magnitudes;
  for (size_t begin = 0; begin < inputs.queries.size(); begin += head_dim) {
    double sum = 0;
    for (int64_t d = 0; d < head_dim; ++d) sum += std::abs(inputs.queries[begin + d]);
    magnitudes.push_back(inputs.scale * sum * key);
  }
  return magnitudes;
}

std::vector<int64_t> Lengths(const Steps& steps) {
  std::vector<int64_t> lengths;
  for (const SliceRange& slice : steps.slices) lengths.push_back(slice.end);
  return lengths;
}

void CompareAttention(const BackendCase& c, const Shape& shape, const Steps& steps,
                      double query_scale, bool deterministic = true) {
  SCOPED_TRACE(testing::Message() << steps.name << ", " << shape.heads << "/" << shape.kv_heads
                                  << " heads of " << shape.head_dim << ", pages of "
                                  << shape.page_size << ", queries to " << query_scale);
  const PagedStep step(steps.slices, Lengths(steps), shape.page_size, 5);
  Devices devices(c, {.rows = step.rows(),
                      .heads = shape.heads,
                      .kv_heads = shape.kv_heads,
                      .head_dim = shape.head_dim,
                      .page_size = shape.page_size});
  devices.tested.context().deterministic = deterministic;
  const int64_t cache = step.pages() * shape.kv_heads * shape.page_size * shape.head_dim;
  const int64_t width = shape.heads * shape.head_dim;
  // Products are of the compute type, also where the cache holds more.
  const bool bf16 = c.compute == DType::kBf16;
  const DType product = bf16 ? DType::kBf16 : c.kv_cache;
  Inputs inputs = {RandomValues(step.rows() * width, 1, query_scale, c.compute),
                   RandomValues(cache, 2, 1, product), RandomValues(cache, 3, 1, product),
                   static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)))};
  const BackendCase f32;
  const auto got = Attend(devices.tested, shape, step, inputs, c);
  const auto want = Attend(devices.reference, shape, step, inputs, f32);
  const auto scores = ScoreMagnitudes(inputs, shape.head_dim);
  inputs.values = support::Magnitudes(inputs.values);
  const auto magnitude = Attend(devices.reference, shape, step, inputs, f32);
  std::vector<int64_t> lengths;
  for (const SliceRange& slice : steps.slices)
    for (int64_t position = slice.begin; position < slice.end; ++position)
      lengths.push_back(position + 1);
  ExpectWithin(got, want, [&](int64_t i) {
    return Attention(want[i],
                     {.head_dim = shape.head_dim,
                      .length = lengths[i / width],
                      .score_magnitude = scores[i / shape.head_dim],
                      .value_magnitude = magnitude[i]},
                     c.compute, bf16);
  });
}

TEST_P(AttentionTest, MatchesTheReference) {
  for (const Shape& shape : kShapes)
    for (const Steps& steps : AllSteps()) CompareAttention(GetParam(), shape, steps, 1);
}

// Weights from almost one to almost nothing, and largest scores that move from block to block.
TEST_P(AttentionTest, SharpSoftmaxMatchesTheReference) {
  for (const Shape& shape : kShapes) CompareAttention(GetParam(), shape, AllSteps().back(), 30);
}

// Where bits may depend on the step, a backend may cut contexts into parts.
TEST_P(AttentionTest, AnyOrderOfSumsMatchesTheReference) {
  const Steps rows = {"long decoding rows and chunks",
                      {{1299, 1300}, {0, 1}, {40, 75}, {63, 64}, {2000, 2001}, {64, 65}}};
  const Steps empty = {"as many rows as slices, one of them empty",
                       {{640, 641}, {20, 20}, {400, 402}}};
  for (const Shape& shape : kShapes)
    for (const double scale : {1.0, 30.0})
      for (const Steps* steps : {&rows, &empty, &AllSteps()[3], &AllSteps()[4]})
        CompareAttention(GetParam(), shape, *steps, scale, /*deterministic=*/false);
}

TEST_P(AttentionTest, CacheWritePutsRowsIntoTheirSlots) {
  const BackendCase& c = GetParam();
  for (const Shape& shape : kShapes) {
    for (const Steps& steps : AllSteps()) {
      SCOPED_TRACE(steps.name);
      const PagedStep step(steps.slices, Lengths(steps), shape.page_size, 5);
      Devices devices(c, {.rows = step.rows(),
                          .heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .page_size = shape.page_size});
      const int64_t width = shape.kv_heads * shape.head_dim;
      const auto old = RandomValues(step.pages() * width * shape.page_size, 1, 1, DType::kBf16);
      // Rounded to the cache's type by the op where it is the narrower one.
      const auto fresh = RandomValues(step.rows() * width, 2, 1, c.compute);
      const auto write = [&](TestDevice& device, DType compute, DType kv_cache) {
        const ColumnSlice rows(device, fresh, compute, width);
        const View cache = device.Floats(
            old, kv_cache, {step.pages(), shape.kv_heads, shape.page_size, shape.head_dim});
        device.Run(device.ops().cache_write,
                   {.x = rows.view().SplitColumns(shape.kv_heads, shape.head_dim),
                    .slots = step.Upload(device).slots,
                    .cache = cache});
        return device.ReadFloats(cache);
      };
      auto want = write(devices.reference, DType::kF32, DType::kF32);
      if (c.kv_cache == DType::kBf16)
        for (float& value : want) value = tensor::ToFloat(tensor::ToBf16(value));
      EXPECT_EQ(write(devices.tested, c.compute, c.kv_cache), want);
    }
  }
}

}  // namespace
}  // namespace longspan::op_suite
