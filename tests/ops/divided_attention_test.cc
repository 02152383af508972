// Attention to the pages of a sequence that each of two ranks has, merged: attention to all of
// them. On backends of host memory.
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

// Every third page of a sequence of kRows positions that lies in the pages 0 ... in order, for all
// its rows: a row's position is that of the last token there that it sees.
ops::StepTables PartOf(TestDevice& device, int64_t part) {
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < kRows; ++row) {
    int32_t seen = 0;
    for (int64_t position = 0; position <= row; ++position)
      seen += static_cast<int32_t>(position / kPageSize % kParts == part);
    positions.push_back(seen - 1);
  }
  std::vector<int32_t> pages;
  for (int64_t page = 0; page < kPages; ++page)
    if (page % kParts == part) pages.push_back(static_cast<int32_t>(page));
  const auto columns = static_cast<int64_t>(pages.size());
  return {.rows = kRows,
          .slices = 1,
          .max_kv_length = positions.back() + 1,
          .positions = device.Ints(positions, {kRows}),
          .slots = {},
          .slice_row_begin = device.Ints(std::vector<int32_t>{0, kRows}, {2}),
          .page_table = device.Ints(pages, {1, columns})};
}

ops::StepTables Whole(TestDevice& device) {
  std::vector<int32_t> positions;
  for (int32_t row = 0; row < kRows; ++row) positions.push_back(row);
  std::vector<int32_t> pages;
  for (int32_t page = 0; page < kPages; ++page) pages.push_back(page);
  return {.rows = kRows,
          .slices = 1,
          .max_kv_length = kRows,
          .positions = device.Ints(positions, {kRows}),
          .slots = {},
          .slice_row_begin = device.Ints(std::vector<int32_t>{0, kRows}, {2}),
          .page_table = device.Ints(pages, {1, kPages})};
}

// attend(tables, out, exp_sums); results have `dim` columns.
template <typename Attend>
void ExpectPartsMakeTheWhole(const BackendCase& c, TestDevice& device, int64_t dim,
                             const Attend& attend) {
  const View whole = device.Zeros(c.compute, {kRows, kHeads, dim});
  attend(Whole(device), whole, View());
  const View parts = device.Zeros(c.compute, {kParts, kRows, kHeads, dim});
  const View exp_sums = device.Zeros(DType::kF32, {kParts, kRows, kHeads, 2});
  for (int64_t part = 0; part < kParts; ++part) {
    const View out(parts.Rows(part, 1).raw(), c.compute, {kRows, kHeads, dim});
    const View sums(exp_sums.Rows(part, 1).raw(), DType::kF32, {kRows, kHeads, 2});
    attend(PartOf(device, part), out, sums);
  }
  const View merged = device.Zeros(c.compute, {kRows, kHeads, dim});
  device.Run(device.ops().merge_attention, {.parts = parts, .exp_sums = exp_sums, .out = merged});
  const auto got = device.ReadFloats(merged);
  const auto want = device.ReadFloats(whole);
  const double bound = c.compute == DType::kF32 ? 2e-6 : 2e-2;
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << i;
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
  ExpectPartsMakeTheWhole(
      c, device, kDim, [&](const ops::StepTables& tables, const View& out, const View& exp_sums) {
        device.Run(device.ops().attention, {.queries = queries,
                                            .key_cache = keys,
                                            .value_cache = values,
                                            .tables = tables,
                                            .scale = kScale,
                                            .out = out,
                                            .exp_sums = exp_sums});
      });
}

TEST_P(DividedAttentionTest, OfGroupedQueries) {
  if (GetParam().backend->ops().merge_attention == nullptr) GTEST_SKIP() << "no merge_attention";
  ExpectPartsOfGroupsMakeTheWhole(GetParam(), 0);
}

// The sums of exponentials of a part keep their precision however large they are.
TEST_P(DividedAttentionTest, OfGroupedQueriesWithLargeScores) {
  if (GetParam().backend->ops().merge_attention == nullptr) GTEST_SKIP() << "no merge_attention";
  ExpectPartsOfGroupsMakeTheWhole(GetParam(), 80);
}

// Every fifth position and the row's own, of the whole sequence and of every part of it: some rows
// have none of a part's.
std::vector<View> ListsOfWholeAndParts(TestDevice& device) {
  std::vector<View> lists;
  for (int64_t part = -1; part < kParts; ++part) {
    std::vector<int32_t> positions(kRows * kRows, -1);
    for (int64_t row = 0; row < kRows; ++row) {
      int32_t* next = positions.data() + row * kRows;
      int32_t seen = 0;
      for (int64_t position = 0; position <= row; ++position) {
        if (part >= 0 && position / kPageSize % kParts != part) continue;
        if (position % 5 == 2 || position == row) *next++ = seen;
        ++seen;
      }
    }
    lists.push_back(device.Ints(positions, {kRows, kRows}));
  }
  return lists;
}

void ExpectPartsOfLatentsMakeTheWhole(const BackendCase& c, bool selected) {
  constexpr int64_t kRank = 40;
  constexpr int64_t kRope = 8;
  TestDevice device(*c.backend, 2,
                    {.rows = kRows,
                     .heads = kHeads,
                     .page_size = kPageSize,
                     .latent_rank = kRank,
                     .latent_rope_dim = kRope});
  const auto queries = [&](uint64_t seed, int64_t dim) {
    return device.Floats(RandomValues(kRows * kHeads * dim, seed, 2, c.compute), c.compute,
                         {kRows, kHeads, dim});
  };
  const auto cache = [&](uint64_t seed, int64_t dim) {
    return device.Floats(RandomValues(kPages * kPageSize * dim, seed, 1, c.kv_cache), c.kv_cache,
                         {kPages, 1, kPageSize, dim});
  };
  const View latent_queries = queries(1, kRank);
  const View rope_queries = queries(2, kRope);
  const View latents = cache(3, kRank);
  const View ropes = cache(4, kRope);
  const std::vector<View> lists = ListsOfWholeAndParts(device);
  size_t next = 0;
  ExpectPartsMakeTheWhole(
      c, device, kRank, [&](const ops::StepTables& tables, const View& out, const View& exp_sums) {
        device.Run(device.ops().latent_attention, {.latent_queries = latent_queries,
                                                   .rope_queries = rope_queries,
                                                   .latent_cache = latents,
                                                   .rope_cache = ropes,
                                                   .tables = tables,
                                                   .scale = 0.2f,
                                                   .selected = selected ? lists[next++] : View(),
                                                   .out = out,
                                                   .exp_sums = exp_sums});
      });
}

TEST_P(DividedAttentionTest, OfLatents) {
  if (GetParam().backend->ops().merge_attention == nullptr) GTEST_SKIP() << "no merge_attention";
  ExpectPartsOfLatentsMakeTheWhole(GetParam(), /*selected=*/false);
}

TEST_P(DividedAttentionTest, OfSelectedLatents) {
  if (GetParam().backend->ops().merge_attention == nullptr) GTEST_SKIP() << "no merge_attention";
  ExpectPartsOfLatentsMakeTheWhole(GetParam(), /*selected=*/true);
}

}  // namespace
}  // namespace longspan::op_suite
