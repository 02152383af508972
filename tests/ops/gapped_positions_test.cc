// What ranks compute that divide a slice's rows among themselves: the rows' positions have gaps,
// and every row has the bits that it has in the whole slice.
#include <tuple>
#include <vector>

#include "tests/ops/compare.h"
#include "tests/support/paged_step.h"

namespace longspan::op_suite {
namespace {

using support::PagedStep;
using support::RandomValues;
using support::SliceRange;

class GappedPositionsTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, GappedPositionsTest, testing::ValuesIn(AllBackends()), CaseName);

constexpr int64_t kRows = 150;
constexpr int64_t kPrefix = 37;
constexpr int64_t kPageSize = 16;

// Of all rows those that the rank `first` of `step` has.
std::vector<float> Some(std::span<const float> values, int64_t first, int64_t step) {
  const size_t width = values.size() / kRows;
  std::vector<float> some;
  for (auto row = static_cast<size_t>(first); row < kRows; row += static_cast<size_t>(step))
    some.insert(some.end(), values.begin() + static_cast<std::ptrdiff_t>(row * width),
                values.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
  return some;
}

// The rows `first`, first + step ... of a slice behind a prefix.
PagedStep StepOf(int64_t first, int64_t step) {
  const SliceRange slices[] = {{kPrefix + first, kPrefix + kRows, step}};
  const int64_t lengths[] = {kPrefix + kRows};
  return {slices, lengths, kPageSize, 11};
}

// compute(first, step) returns the result of these rows.
template <typename Compute>
void ExpectSameRows(const Compute& compute) {
  const std::vector<float> whole = compute(0, 1);
  ASSERT_FALSE(whole.empty());
  for (int64_t first = 0; first < 3; ++first)
    ASSERT_EQ(compute(first, 3), Some(whole, first, 3)) << first;
}

TEST_P(GappedPositionsTest, Attention) {
  const BackendCase& c = GetParam();
  constexpr int64_t kHeads = 6;
  constexpr int64_t kKvHeads = 2;
  constexpr int64_t kDim = 40;
  TestDevice device(*c.backend, 2,
                    {.rows = kRows,
                     .heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kDim,
                     .page_size = kPageSize});
  const auto all = RandomValues(kRows * kHeads * kDim, 1, 3, c.compute);
  const int64_t pages = StepOf(0, 1).pages();
  const auto cache = [&](uint64_t seed) {
    return device.Floats(RandomValues(pages * kKvHeads * kPageSize * kDim, seed, 1, c.kv_cache),
                         c.kv_cache, {pages, kKvHeads, kPageSize, kDim});
  };
  const View keys = cache(2);
  const View values = cache(3);
  ExpectSameRows([&](int64_t first, int64_t step) {
    const PagedStep rows = StepOf(first, step);
    const View out = device.Zeros(c.compute, {rows.rows(), kHeads, kDim});
    device.Run(device.ops().attention, {.queries = device.Floats(Some(all, first, step), c.compute,
                                                                 {rows.rows(), kHeads, kDim}),
                                        .key_cache = keys,
                                        .value_cache = values,
                                        .tables = rows.Upload(device),
                                        .scale = 0.125f,
                                        .out = out});
    return device.ReadFloats(out);
  });
}

TEST_P(GappedPositionsTest, LatentAttentionToSelectedPositions) {
  const BackendCase& c = GetParam();
  constexpr int64_t kHeads = 5;
  constexpr int64_t kRank = 48;
  constexpr int64_t kRope = 16;
  constexpr int64_t kIndexDim = 32;
  constexpr int64_t kTopK = 50;
  TestDevice device(*c.backend, 2,
                    {.rows = kRows,
                     .heads = kHeads,
                     .page_size = kPageSize,
                     .latent_rank = kRank,
                     .latent_rope_dim = kRope,
                     .index_heads = kHeads,
                     .index_dim = kIndexDim,
                     .index_top_k = kTopK});
  const int64_t pages = StepOf(0, 1).pages();
  const auto cache = [&](uint64_t seed, int64_t dim) {
    return device.Floats(RandomValues(pages * kPageSize * dim, seed, 1, c.kv_cache), c.kv_cache,
                         {pages, 1, kPageSize, dim});
  };
  const View latents = cache(5, kRank);
  const View ropes = cache(6, kRope);
  const View keys = cache(7, kIndexDim);
  const auto weights = RandomValues(kRows * kHeads, 4);
  const auto queries_of = [&](uint64_t seed, int64_t dim) {
    return RandomValues(kRows * kHeads * dim, seed, 2, c.compute);
  };
  for (const bool sparse : {false, true}) {
    ExpectSameRows([&](int64_t first, int64_t step) {
      const PagedStep paged = StepOf(first, step);
      const int64_t rows = paged.rows();
      const auto tables = paged.Upload(device);
      const auto queries = [&](uint64_t seed, int64_t dim) {
        return device.Floats(Some(queries_of(seed, dim), first, step), c.compute,
                             {rows, kHeads, dim});
      };
      View selected;
      if (sparse) {
        selected = device.Zeros(DType::kI32, {rows, kTopK});
        device.Run(
            device.ops().index_select,
            {.queries = queries(3, kIndexDim),
             .head_weights = device.Floats(Some(weights, first, step), DType::kF32, {rows, kHeads}),
             .index_cache = keys,
             .tables = tables,
             .selected = selected});
      }
      const View out = device.Zeros(c.compute, {rows, kHeads, kRank});
      device.Run(device.ops().latent_attention, {.latent_queries = queries(1, kRank),
                                                 .rope_queries = queries(2, kRope),
                                                 .latent_cache = latents,
                                                 .rope_cache = ropes,
                                                 .tables = tables,
                                                 .scale = 0.125f,
                                                 .selected = selected,
                                                 .out = out});
      return device.ReadFloats(out);
    });
  }
}

}  // namespace
}  // namespace longspan::op_suite
