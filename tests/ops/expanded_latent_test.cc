// expanded_latent_attention, on whole steps and on parts of them.
#include <algorithm>

#include "tests/ops/compare.h"
#include "tests/support/paged_step.h"

namespace longspan::op_suite {
namespace {

using support::PagedStep;
using support::RandomValues;
using support::SliceRange;

class ExpandedLatentTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, ExpandedLatentTest, testing::ValuesIn(AllBackends()), CaseName);

struct Shape {
  int64_t heads;
  int64_t rank;
  int64_t nope;
  int64_t rope;
  int64_t value;
  int64_t page_size;

  int64_t query() const { return nope + rope; }
};

// The third has a latent that takes two passes of a product, and odd sizes of everything that may
// be odd.
constexpr Shape kShapes[] = {{6, 64, 32, 16, 32, 16},
                             {3, 512, 128, 64, 128, 64},
                             {2, 1101, 18, 6, 67, 16},
                             {1, 40, 24, 16, 24, 128}};

const std::vector<SliceRange> kSlices = {{99, 100}, {64, 150}, {0, 1}, {5, 38}, {250, 251}};

std::vector<int64_t> Ends(std::span<const SliceRange> slices) {
  std::vector<int64_t> ends;
  for (const SliceRange& slice : slices) ends.push_back(slice.end);
  return ends;
}

// Of one device: caches, weights and queries.
struct Inputs {
  View queries;
  View latents;
  View ropes;
  std::vector<const ops::PackedWeight*> keys;
  std::vector<const ops::PackedWeight*> values;
  float scale;
};

// Elements of weights are so small that those of keys and values are below 1.
double WeightScale(const Shape& shape) { return 1.0 / static_cast<double>(shape.rank); }

// `types` are the tested backend's: inputs are exact in them wherever they are used.
Inputs MakeInputs(TestDevice& device, const Shape& shape, const PagedStep& step,
                  const BackendCase& types, DType compute, DType cache) {
  const DType product = types.compute == DType::kBf16 ? DType::kBf16 : types.kv_cache;
  const int64_t slots = step.pages() * shape.page_size;
  Inputs inputs;
  inputs.queries =
      device
          .Floats(RandomValues(step.rows() * shape.heads * shape.query(), 1, 2, types.compute),
                  compute, {step.rows(), shape.heads * shape.query()})
          .SplitColumns(shape.heads, shape.query());
  inputs.latents = device.Floats(RandomValues(slots * shape.rank, 3, 1, product), cache,
                                 {step.pages(), 1, shape.page_size, shape.rank});
  inputs.ropes = device.Floats(RandomValues(slots * shape.rope, 4, 1, product), cache,
                               {step.pages(), 1, shape.page_size, shape.rope});
  const auto weight = [&](int64_t rows, int64_t seed) {
    return device.Weight(RandomValues(rows * shape.rank, seed, WeightScale(shape), types.compute),
                         compute, rows, shape.rank);
  };
  for (int64_t head = 0; head < shape.heads; ++head) {
    inputs.keys.push_back(weight(shape.nope, 10 + head));
    inputs.values.push_back(weight(shape.value, 50 + head));
  }
  inputs.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.query())));
  return inputs;
}

std::vector<float> Attend(TestDevice& device, const Shape& shape, const Inputs& inputs,
                          const ops::StepTables& tables, const View& queries) {
  const std::vector<float> marks(tables.rows * shape.heads * shape.value, ColumnSlice::kMark);
  const ColumnSlice out(device, marks, queries.dtype(), shape.heads * shape.value);
  device.Run(device.ops().expanded_latent_attention,
             {.queries = queries,
              .latent_cache = inputs.latents,
              .rope_cache = inputs.ropes,
              .key_weights = inputs.keys,
              .value_weights = inputs.values,
              .tables = tables,
              .scale = inputs.scale,
              .out = out.view().SplitColumns(shape.heads, shape.value)});
  out.ExpectMarks();
  return device.ReadFloats(out.view());
}

ops::WorkspaceShape Workspace(const Shape& shape, int64_t rows) {
  return {.rows = rows,
          .heads = shape.heads,
          .page_size = shape.page_size,
          .max_columns = std::max(shape.rank, shape.nope),
          .latent_rank = shape.rank,
          .latent_rope_dim = shape.rope,
          .latent_nope_dim = shape.nope,
          .latent_value_dim = shape.value};
}

TEST_P(ExpandedLatentTest, MatchesTheReference) {
  const BackendCase& c = GetParam();
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.nope << " + "
                                    << shape.rope << " and " << shape.value);
    const PagedStep step(kSlices, Ends(kSlices), shape.page_size, 5);
    Devices devices(c, Workspace(shape, step.rows()));
    const auto run = [&](TestDevice& device, DType compute, DType cache) {
      const Inputs inputs = MakeInputs(device, shape, step, c, compute, cache);
      return Attend(device, shape, inputs, step.Upload(device), inputs.queries);
    };
    const auto got = run(devices.tested, c.compute, c.kv_cache);
    const auto want = run(devices.reference, DType::kF32, DType::kF32);
    std::vector<int64_t> visible;
    for (const SliceRange& slice : kSlices)
      for (int64_t position = slice.begin; position < slice.end; ++position)
        visible.push_back(position + 1);
    // |query| <= 2, |rope key| <= 1, and |element| <= 1 of an expanded key or value, which is a sum
    // of `rank` products.
    const double scale = 1 / std::sqrt(static_cast<double>(shape.query()));
    const double element = SumOfProducts(1, shape.rank, 1, c.compute);
    const double score_error = scale * 2 * static_cast<double>(shape.nope) * element;
    const int64_t width = shape.heads * shape.value;
    ExpectWithin(got, want, [&](int64_t i) {
      return Attention(want[i],
                       {.head_dim = shape.query(),
                        .length = visible[i / width],
                        .score_magnitude = scale * 2 * static_cast<double>(shape.query()),
                        .value_magnitude = 1,
                        .score_error = score_error,
                        .value_error = element},
                       c.compute, c.compute == DType::kBf16);
    });
  }
}

// Also says that it is the same function as the absorbed form of it.
TEST_P(ExpandedLatentTest, EqualsTheAbsorbedForm) {
  const BackendCase& c = GetParam();
  if (c.compute != DType::kF32) GTEST_SKIP() << "in bf16 the forms round at different places";
  const Shape& shape = kShapes[0];
  const PagedStep step(kSlices, Ends(kSlices), shape.page_size, 5);
  TestDevice device(*c.backend, 2, Workspace(shape, step.rows()));
  const Inputs inputs = MakeInputs(device, shape, step, c, c.compute, c.kv_cache);
  const auto expanded = Attend(device, shape, inputs, step.Upload(device), inputs.queries);

  std::vector<const ops::PackedWeight*> to_latent;
  for (int64_t head = 0; head < shape.heads; ++head) {
    const auto rows = RandomValues(shape.nope * shape.rank, 10 + head, WeightScale(shape));
    std::vector<float> columns(rows.size());
    for (int64_t i = 0; i < shape.nope; ++i)
      for (int64_t j = 0; j < shape.rank; ++j)
        columns[j * shape.nope + i] = rows[i * shape.rank + j];
    to_latent.push_back(device.Weight(columns, c.compute, shape.rank, shape.nope));
  }
  const View queries = device.Zeros(c.compute, {step.rows(), shape.heads, shape.rank});
  const View latents = device.Zeros(c.compute, {step.rows(), shape.heads, shape.rank});
  const View out = device.Zeros(c.compute, {step.rows(), shape.heads, shape.value});
  device.Run(device.ops().head_linear,
             {.x = inputs.queries.Columns(0, shape.nope), .weights = to_latent, .out = queries});
  device.Run(device.ops().latent_attention,
             {.latent_queries = queries,
              .rope_queries = inputs.queries.Columns(shape.nope, shape.rope),
              .latent_cache = inputs.latents,
              .rope_cache = inputs.ropes,
              .tables = step.Upload(device),
              .scale = inputs.scale,
              .out = latents});
  device.Run(device.ops().head_linear, {.x = latents, .weights = inputs.values, .out = out});
  // Both are within this of the exact value: about `rank` and 251 roundings of terms below 1.
  const double bound = 2 * (Gamma(shape.rank + shape.query()) * 8 + Gamma(251) + 64 * kUnitF32);
  ExpectWithin(device.ReadFloats(out), expanded, [&](int64_t) { return bound; });
}

TEST_P(ExpandedLatentTest, APartOfAStepIsTheSameBits) {
  const BackendCase& c = GetParam();
  const Shape& shape = kShapes[0];
  const PagedStep step(kSlices, Ends(kSlices), shape.page_size, 5);
  const int64_t width = shape.heads * shape.value;
  for (const int threads : {1, 3}) {
    TestDevice device(*c.backend, threads, Workspace(shape, step.rows()));
    const Inputs inputs = MakeInputs(device, shape, step, c, c.compute, c.kv_cache);
    const ops::StepTables tables = step.Upload(device);
    const auto whole = Attend(device, shape, inputs, tables, inputs.queries);
    int64_t row = 0;
    for (int64_t slice = 0; slice < static_cast<int64_t>(kSlices.size()); ++slice) {
      const int64_t rows = kSlices[slice].end - kSlices[slice].begin;
      const auto part = Attend(device, shape, inputs, tables.Part(slice, 1, row, rows),
                               inputs.queries.Rows(row, rows));
      EXPECT_EQ(part, std::vector<float>(whole.begin() + row * width,
                                         whole.begin() + (row + rows) * width));
      row += rows;
    }
  }
}

}  // namespace
}  // namespace longspan::op_suite
