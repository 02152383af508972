// Attention to the pages of a sequence that each of some ranks has, merged: attention to all of
// them.
#include <cmath>
#include <vector>

#include "tests/ops/compare.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;

class DividedAttentionTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, DividedAttentionTest, testing::ValuesIn(AllBackends()), CaseName);

constexpr int64_t kRows = 70;
constexpr int64_t kPageSize = 16;
constexpr int64_t kPages = 5;  // one of the last rank's is not full
constexpr int64_t kHeads = 4;
constexpr int64_t kParts = 3;

// Rows of the sequence: all of them, one that decodes, and one whose keys only the first rank has.
struct Range {
  int64_t first;
  int64_t rows;
};
constexpr Range kRanges[] = {{0, kRows}, {kRows - 1, 1}, {0, 1}};

// Every third page of a sequence of kRows positions that lies in the pages 0 ... in order, for some
// of its rows: a row's position is that of the last token there that it sees.
ops::StepTables PartOf(TestDevice& device, const Range& range, int64_t part) {
  std::vector<int32_t> positions;
  for (int64_t row = range.first; row < range.first + range.rows; ++row) {
    int32_t seen = 0;
    for (int64_t position = 0; position <= row; ++position)
      seen += static_cast<int32_t>(position / kPageSize % kParts == part);
    positions.push_back(seen - 1);
  }
  std::vector<int32_t> pages;
  for (int64_t page = 0; page < kPages; ++page)
    if (page % kParts == part) pages.push_back(static_cast<int32_t>(page));
  const auto columns = static_cast<int64_t>(pages.size());
  const auto rows = static_cast<int32_t>(range.rows);
  return {.rows = range.rows,
          .slices = 1,
          .max_kv_length = positions.back() + 1,
          .positions = device.Ints(positions, {range.rows}),
          .slots = {},
          .slice_row_begin = device.Ints(std::vector<int32_t>{0, rows}, {2}),
          .page_table = device.Ints(pages, {1, columns})};
}

ops::StepTables Whole(TestDevice& device, const Range& range) {
  std::vector<int32_t> positions;
  for (int64_t row = range.first; row < range.first + range.rows; ++row)
    positions.push_back(static_cast<int32_t>(row));
  std::vector<int32_t> pages;
  for (int32_t page = 0; page < kPages; ++page) pages.push_back(page);
  const auto rows = static_cast<int32_t>(range.rows);
  return {.rows = range.rows,
          .slices = 1,
          .max_kv_length = positions.back() + 1,
          .positions = device.Ints(positions, {range.rows}),
          .slots = {},
          .slice_row_begin = device.Ints(std::vector<int32_t>{0, rows}, {2}),
          .page_table = device.Ints(pages, {1, kPages})};
}

// attend(part of the keys or -1 for all, range, tables, out, exp_sums); results have `dim` columns.
template <typename Attend>
void ExpectPartsMakeTheWhole(const BackendCase& c, TestDevice& device, int64_t dim,
                             const Attend& attend) {
  // GPUs approximate powers of two.
  const double exact = c.backend->is_on_host() ? 2e-6 : 2e-5;
  const double bound = c.compute == DType::kF32 ? exact : 2e-2;
  for (const Range& range : kRanges) {
    const int64_t rows = range.rows;
    // Kernels that split a row's keys are used where that may change its bits.
    for (const bool deterministic : {true, false}) {
      device.context().deterministic = deterministic;
      const View whole = device.Zeros(c.compute, {rows, kHeads, dim});
      attend(-1, range, Whole(device, range), whole, View());
      const View parts = device.Zeros(c.compute, {kParts, rows, kHeads, dim});
      const View exp_sums = device.Zeros(DType::kF32, {kParts, rows, kHeads, 2});
      for (int64_t part = 0; part < kParts; ++part) {
        const View out(parts.Rows(part, 1).raw(), c.compute, {rows, kHeads, dim});
        const View sums(exp_sums.Rows(part, 1).raw(), DType::kF32, {rows, kHeads, 2});
        attend(part, range, PartOf(device, range, part), out, sums);
      }
      const View merged = device.Zeros(c.compute, {rows, kHeads, dim});
      device.Run(device.ops().merge_attention,
                 {.parts = parts, .exp_sums = exp_sums, .out = merged});
      const auto got = device.ReadFloats(merged);
      const auto want = device.ReadFloats(whole);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], bound) << range.first << " " << rows << " " << i;
    }
  }
}

// All scores are about `score` besides what is random in them.
void ExpectPartsOfGroupsMakeTheWhole(const BackendCase& c, float score) {
  constexpr int64_t kKvHeads = 2;
  constexpr int64_t kDim = 24;
  TestDevice device(*c.backend, 2,
                    {.rows = kRows,
                     .heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kDim,
                     .page_size = kPageSize});
  constexpr float kScale = 0.3f;
  const auto with_first = [](std::vector<float> values, float first) {
    for (size_t i = 0; i < values.size(); i += kDim) values[i] = first;
    return values;
  };
  const View queries =
      device.Floats(with_first(RandomValues(kRows * kHeads * kDim, 1, 3, c.compute), 8), c.compute,
                    {kRows, kHeads, kDim});
  const auto cache = [&](uint64_t seed, float first) {
    return device.Floats(
        with_first(RandomValues(kPages * kKvHeads * kPageSize * kDim, seed, 1, c.kv_cache), first),
        c.kv_cache, {kPages, kKvHeads, kPageSize, kDim});
  };
  const View keys = cache(2, std::round(score / kScale / 8));
  const View values = cache(3, 0);
  ExpectPartsMakeTheWhole(c, device, kDim,
                          [&](int64_t /*part*/, const Range& range, const ops::StepTables& tables,
                              const View& out, const View& exp_sums) {
                            device.Run(device.ops().attention,
                                       {.queries = queries.Rows(range.first, range.rows),
                                        .key_cache = keys,
                                        .value_cache = values,
                                        .tables = tables,
                                        .scale = kScale,
                                        .out = out,
                                        .exp_sums = exp_sums});
                          });
}

TEST_P(DividedAttentionTest, OfGroupedQueries) { ExpectPartsOfGroupsMakeTheWhole(GetParam(), 0); }

// The sums of exponentials of a part keep their precision however large they are.
TEST_P(DividedAttentionTest, OfGroupedQueriesWithLargeScores) {
  ExpectPartsOfGroupsMakeTheWhole(GetParam(), 80);
}

// Every fifth position and the row's own, of the whole sequence (-1) or of a part of it: some rows
// have none of a part's.
View ListsOf(TestDevice& device, int64_t part, const Range& range) {
  std::vector<int32_t> positions(static_cast<size_t>(range.rows * kRows), -1);
  for (int64_t row = 0; row < range.rows; ++row) {
    int32_t* next = positions.data() + row * kRows;
    int32_t seen = 0;
    for (int64_t position = 0; position <= range.first + row; ++position) {
      if (part >= 0 && position / kPageSize % kParts != part) continue;
      if (position % 5 == 2 || position == range.first + row) *next++ = seen;
      ++seen;
    }
  }
  return device.Ints(positions, {range.rows, kRows});
}

void ExpectLatentPartsMakeTheWhole(const BackendCase& c, int64_t rank, int64_t rope,
                                   bool selected = false) {
  TestDevice device(*c.backend, 2,
                    {.rows = kRows,
                     .heads = kHeads,
                     .page_size = kPageSize,
                     .latent_rank = rank,
                     .latent_rope_dim = rope});
  const auto queries = [&](uint64_t seed, int64_t dim) {
    return device.Floats(RandomValues(kRows * kHeads * dim, seed, 2, c.compute), c.compute,
                         {kRows, kHeads, dim});
  };
  const auto cache = [&](uint64_t seed, int64_t dim) {
    return device.Floats(RandomValues(kPages * kPageSize * dim, seed, 1, c.kv_cache), c.kv_cache,
                         {kPages, 1, kPageSize, dim});
  };
  const View latent_queries = queries(1, rank);
  const View rope_queries = queries(2, rope);
  const View latents = cache(3, rank);
  const View ropes = cache(4, rope);
  ExpectPartsMakeTheWhole(c, device, rank,
                          [&](int64_t part, const Range& range, const ops::StepTables& tables,
                              const View& out, const View& exp_sums) {
                            device.Run(
                                device.ops().latent_attention,
                                {.latent_queries = latent_queries.Rows(range.first, range.rows),
                                 .rope_queries = rope_queries.Rows(range.first, range.rows),
                                 .latent_cache = latents,
                                 .rope_cache = ropes,
                                 .tables = tables,
                                 .scale = 0.2f,
                                 .selected = selected ? ListsOf(device, part, range) : View(),
                                 .out = out,
                                 .exp_sums = exp_sums});
                          });
}

TEST_P(DividedAttentionTest, OfLatents) { ExpectLatentPartsMakeTheWhole(GetParam(), 40, 8); }

// What DeepSeek's models have, for which GPUs have kernels of their own.
TEST_P(DividedAttentionTest, OfLargeLatents) { ExpectLatentPartsMakeTheWhole(GetParam(), 512, 64); }

TEST_P(DividedAttentionTest, OfSelectedLatents) {
  ExpectLatentPartsMakeTheWhole(GetParam(), 40, 8, /*selected=*/true);
}

TEST_P(DividedAttentionTest, OfLargeSelectedLatents) {
  ExpectLatentPartsMakeTheWhole(GetParam(), 512, 64, /*selected=*/true);
}

}  // namespace
}  // namespace longspan::op_suite
