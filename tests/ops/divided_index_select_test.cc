// Ranks that each have some pages of the sequences select together what one rank with all pages
// selects. On backends of host memory.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tests/ops/compare.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;

class DividedIndexSelectTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, DividedIndexSelectTest, testing::ValuesIn(AllBackends()), CaseName);

constexpr int64_t kPageSize = 16;
constexpr int64_t kParts = 3;
constexpr int64_t kHeads = 4;
constexpr int64_t kDim = 24;

// Rows [begin, end) of a sequence, and its pages among those of the whole cache.
struct Slice {
  int64_t begin;
  int64_t end;
  std::vector<int32_t> pages;
};

// In no order over three parts, which need not have a page of every sequence.
const std::vector<Slice> kSlices = {{0, 70, {4, 11, 2, 9, 0}},
                                    {100, 133, {8, 1, 17, 3, 5, 13, 6, 10, 7}},
                                    {20, 41, {15, 14, 12}},
                                    {0, 1, {16}}};
constexpr int64_t kPages = 18;

int64_t Rows() {
  int64_t rows = 0;
  for (const Slice& slice : kSlices) rows += slice.end - slice.begin;
  return rows;
}

// The tables of a rank that has every kParts-th page of the cache, or all of them.
struct Tables {
  ops::StepTables step;
  std::vector<int32_t> page_indices;
  View device_indices;
};

Tables TablesOf(TestDevice& device, const std::function<bool(int32_t)>& has, int32_t parts) {
  constexpr int64_t kColumns = 9;
  std::vector<int32_t> positions, row_begin = {0}, page_table, indices;
  for (const Slice& slice : kSlices) {
    for (int64_t position = slice.begin; position < slice.end; ++position) {
      int64_t seen = 0;
      for (int64_t i = 0; i <= position; ++i)
        seen += has(slice.pages[static_cast<size_t>(i / kPageSize)]) ? 1 : 0;
      positions.push_back(static_cast<int32_t>(seen - 1));
    }
    row_begin.push_back(static_cast<int32_t>(positions.size()));
    const size_t begin = page_table.size();
    for (size_t i = 0; i < slice.pages.size(); ++i) {
      if (!has(slice.pages[i])) continue;
      page_table.push_back(slice.pages[i] / parts);
      indices.push_back(static_cast<int32_t>(i));
    }
    page_table.resize(begin + kColumns);
    indices.resize(begin + kColumns);
  }
  const auto slices = static_cast<int64_t>(kSlices.size());
  return {{.rows = Rows(),
           .slices = slices,
           .max_kv_length = *std::max_element(positions.begin(), positions.end()) + 1,
           .positions = device.Ints(positions, {Rows()}),
           .slots = {},
           .slice_row_begin = device.Ints(row_begin, {slices + 1}),
           .page_table = device.Ints(page_table, {slices, kColumns})},
          indices,
          device.Ints(indices, {slices, kColumns})};
}

struct Inputs {
  std::vector<float> queries;
  std::vector<float> head_weights;
  std::vector<float> keys;  // of the whole cache
};

Inputs RandomInputs(const BackendCase& c) {
  return {RandomValues(Rows() * kHeads * kDim, 1, 2, c.compute),
          RandomValues(Rows() * kHeads, 2, 2),
          RandomValues(kPages * kPageSize * kDim, 3, 2,
                       c.compute == DType::kBf16 ? DType::kBf16 : c.kv_cache)};
}

// The positions that every row attends to.
using Lists = std::vector<std::vector<int32_t>>;

class Selection {
 public:
  Selection(const BackendCase& c, const Inputs& inputs, int64_t top_k)
      : c_(c),
        inputs_(inputs),
        top_k_(top_k),
        device_(*c.backend, 2,
                {.rows = Rows(),
                 .page_size = kPageSize,
                 .index_heads = kHeads,
                 .index_dim = kDim,
                 .index_top_k = top_k}),
        queries_(device_.Floats(inputs.queries, c.compute, {Rows(), kHeads, kDim})),
        weights_(device_.Floats(inputs.head_weights, DType::kF32, {Rows(), kHeads})) {}

  Lists OfOneRank() {
    const Tables tables = TablesOf(
        device_, [](int32_t) { return true; }, 1);
    const View selected = device_.Zeros(DType::kI32, {Rows(), top_k_});
    device_.Run(device_.ops().index_select,
                {.queries = queries_,
                 .head_weights = weights_,
                 .index_cache = CacheOf([](int64_t page) { return page; }, kPages),
                 .tables = tables.step,
                 .scale = 0.25f,
                 .selected = selected});
    Lists lists(static_cast<size_t>(Rows()));
    AddTo(lists, device_.ReadInts(selected), [](size_t, int32_t position) { return position; });
    return lists;
  }

  Lists OfAllParts() {
    const View scores = device_.Zeros(DType::kF32, {kParts, Rows(), top_k_});
    const View positions = device_.Zeros(DType::kI32, {kParts, Rows(), top_k_});
    const View counts = device_.Zeros(DType::kI32, {kParts, Rows()});
    std::vector<Tables> tables;
    for (int32_t part = 0; part < kParts; ++part) {
      tables.push_back(TablesOf(
          device_, [&](int32_t page) { return page % kParts == part; }, kParts));
      device_.Run(device_.ops().index_candidates,
                  {.queries = queries_,
                   .head_weights = weights_,
                   .index_cache =
                       CacheOf([&](int64_t page) { return page * kParts + part; }, kPages / kParts),
                   .tables = tables.back().step,
                   .page_indices = tables.back().device_indices,
                   .scale = 0.25f,
                   .scores = View(scores.Rows(part, 1).raw(), DType::kF32, {Rows(), top_k_}),
                   .positions = ListsOf(positions, part)});
    }
    device_.Run(device_.ops().index_merge,
                {.scores = scores, .positions = positions, .counts = counts});
    Lists lists(static_cast<size_t>(Rows()));
    for (int32_t part = 0; part < kParts; ++part)
      Take(part, tables[part], positions, counts, lists);
    for (auto& list : lists) std::sort(list.begin(), list.end());
    return lists;
  }

 private:
  View ListsOf(const View& positions, int32_t part) const {
    return {positions.Rows(part, 1).raw(), DType::kI32, {Rows(), top_k_}};
  }

  template <typename PageOf>
  View CacheOf(const PageOf& page_of, int64_t pages) {
    std::vector<float> keys;
    for (int64_t page = 0; page < pages; ++page) {
      const auto first = inputs_.keys.begin() + page_of(page) * kPageSize * kDim;
      keys.insert(keys.end(), first, first + kPageSize * kDim);
    }
    return device_.Floats(keys, c_.kv_cache, {pages, 1, kPageSize, kDim});
  }

  void Take(int32_t part, const Tables& tables, const View& positions, const View& counts,
            Lists& lists) {
    device_.Run(device_.ops().index_take,
                {.counts = View(counts.Rows(part, 1).raw(), DType::kI32, {Rows()}),
                 .tables = tables.step,
                 .page_indices = tables.device_indices,
                 .page_size = kPageSize,
                 .positions = ListsOf(positions, part)});
    const auto taken = device_.ReadInts(ListsOf(positions, part));
    const size_t columns = tables.page_indices.size() / kSlices.size();
    AddTo(lists, taken, [&](size_t slice, int32_t position) {
      return static_cast<int32_t>(
          tables.page_indices[slice * columns + static_cast<size_t>(position / kPageSize)] *
              kPageSize +
          position % kPageSize);
    });
  }

  // Lists that ascend, with nothing but -1 behind their ends.
  template <typename InSequence>
  void AddTo(Lists& lists, const std::vector<int32_t>& taken, const InSequence& in_sequence) const {
    size_t row = 0;
    for (size_t slice = 0; slice < kSlices.size(); ++slice) {
      for (int64_t i = kSlices[slice].begin; i < kSlices[slice].end; ++i, ++row) {
        const auto begin = taken.begin() + static_cast<ptrdiff_t>(row) * top_k_;
        const auto end = std::find(begin, begin + top_k_, -1);
        EXPECT_TRUE(std::is_sorted(begin, end)) << "row " << row;
        EXPECT_EQ(std::count(end, begin + top_k_, -1), begin + top_k_ - end) << "row " << row;
        for (auto position = begin; position != end; ++position)
          lists[row].push_back(in_sequence(slice, *position));
      }
    }
  }

  const BackendCase& c_;
  const Inputs& inputs_;
  int64_t top_k_;
  TestDevice device_;
  View queries_;
  View weights_;
};

void ExpectTheSelectionOfOneRank(const BackendCase& c, const Inputs& inputs) {
  // Fewer than a page, more than some rows and some parts have, and more than all rows have.
  for (const int64_t top_k : {1, 10, 30, 70, 200}) {
    SCOPED_TRACE(testing::Message() << top_k << " selected");
    Selection selection(c, inputs, top_k);
    EXPECT_EQ(selection.OfAllParts(), selection.OfOneRank());
  }
}

TEST_P(DividedIndexSelectTest, SelectsWhatOneRankSelects) {
  const BackendCase& c = GetParam();
  if (c.backend->ops().index_merge == nullptr) GTEST_SKIP() << "no index_merge";
  ExpectTheSelectionOfOneRank(c, RandomInputs(c));
}

// Small whole numbers: many scores are equal, also at the last that are selected.
TEST_P(DividedIndexSelectTest, TiesGoToTheLowerPositionWhoeverHasIt) {
  const BackendCase& c = GetParam();
  if (c.backend->ops().index_merge == nullptr) GTEST_SKIP() << "no index_merge";
  Inputs inputs = RandomInputs(c);
  for (auto* values : {&inputs.queries, &inputs.head_weights, &inputs.keys})
    for (float& value : *values) value = std::round(value / 2);
  ExpectTheSelectionOfOneRank(c, inputs);
}

// Rows of zeros of both signs, and of no numbers.
TEST_P(DividedIndexSelectTest, EqualAndUndefinedScoresAreSelectedAlike) {
  const BackendCase& c = GetParam();
  if (c.backend->ops().index_merge == nullptr) GTEST_SKIP() << "no index_merge";
  Inputs inputs = RandomInputs(c);
  for (size_t i = 0; i < inputs.head_weights.size(); ++i)
    inputs.head_weights[i] =
        i / kHeads % 2 == 0 ? (i % 2 == 0 ? 0.0f : -0.0f) : std::numeric_limits<float>::quiet_NaN();
  ExpectTheSelectionOfOneRank(c, inputs);
}

}  // namespace
}  // namespace longspan::op_suite
