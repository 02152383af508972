// Latent and sparse attention, and the sigmoid router, against their formulas written down once
// more.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>

#include "backend/reference/test_fixture.h"

namespace longspan::backend::reference {
namespace {

using tensor::View;
using testing::ElementsAre;

constexpr int64_t kPage = 8;
constexpr int64_t kPages = 14;

// One sequence of up to 104 positions, on pages that are dealt backwards; the rows of a step are
// its last ones.
struct Sequence {
  Sequence(int64_t first, int64_t end) : rows(end - first) {
    for (int64_t position = first; position < end; ++position)
      positions.push_back(static_cast<int32_t>(position));
    begin = {0, static_cast<int32_t>(rows)};
    for (int64_t i = 0; i < kPages - 1; ++i) pages.push_back(static_cast<int32_t>(kPages - 1 - i));
  }

  ops::StepTables Tables() {
    return {.rows = rows,
            .slices = 1,
            .max_kv_length = positions.back() + 1,
            .positions = Ints(positions, {rows}),
            .slots = {},
            .slice_row_begin = Ints(begin, {2}),
            .page_table = Ints(pages, {1, kPages - 1})};
  }
  int64_t Slot(int64_t position) const {
    return pages[position / kPage] * kPage + position % kPage;
  }

  int64_t rows;
  std::vector<int32_t> positions;
  std::vector<int32_t> begin;
  std::vector<int32_t> pages;
};

constexpr int64_t kHeads = 3;
constexpr int64_t kRank = 20;
constexpr int64_t kRope = 6;
constexpr float kScale = 0.7f;

struct LatentInputs {
  explicit LatentInputs(int64_t rows)
      : queries(RandomValues(rows * kHeads * kRank, 1)),
        rope_queries(RandomValues(rows * kHeads * kRope, 2)),
        latents(RandomValues(kPages * kPage * kRank, 3)),
        rope_keys(RandomValues(kPages * kPage * kRope, 4)) {}

  std::vector<float> queries, rope_queries, latents, rope_keys;
};

class LatentTest : public ReferenceTest {
 protected:
  // `selected`: [rows, n], or empty.
  std::vector<float> Attend(LatentInputs& inputs, Sequence& sequence,
                            std::vector<int32_t> selected) {
    std::vector<float> out(inputs.queries.size());
    const int64_t rows = sequence.rows;
    const auto count = static_cast<int64_t>(selected.size()) / rows;
    Run(ops_.latent_attention,
        {.latent_queries = Floats(inputs.queries, {rows, kHeads, kRank}),
         .rope_queries = Floats(inputs.rope_queries, {rows, kHeads, kRope}),
         .latent_cache = Floats(inputs.latents, {kPages, 1, kPage, kRank}),
         .rope_cache = Floats(inputs.rope_keys, {kPages, 1, kPage, kRope}),
         .tables = sequence.Tables(),
         .scale = kScale,
         .selected = selected.empty() ? View() : Ints(selected, {rows, count}),
         .out = Floats(out, {rows, kHeads, kRank})});
    return out;
  }
};

// One row and head over the given positions.
std::vector<double> AttendPlainly(const LatentInputs& inputs, const Sequence& sequence,
                                  int64_t row_head, const std::vector<int32_t>& positions) {
  const float* query = inputs.queries.data() + row_head * kRank;
  const float* rope_query = inputs.rope_queries.data() + row_head * kRope;
  std::vector<double> sums(kRank);
  double weights = 0;
  for (const int32_t position : positions) {
    const float* latent = inputs.latents.data() + sequence.Slot(position) * kRank;
    const float* rope_key = inputs.rope_keys.data() + sequence.Slot(position) * kRope;
    const double score = std::inner_product(query, query + kRank, latent, 0.0) +
                         std::inner_product(rope_query, rope_query + kRope, rope_key, 0.0);
    const double weight = std::exp(kScale * score);
    weights += weight;
    for (int64_t d = 0; d < kRank; ++d) sums[d] += weight * latent[d];
  }
  for (double& sum : sums) sum /= weights;
  return sums;
}

TEST_F(LatentTest, AttendsToEveryPositionUpToItsOwn) {
  Sequence sequence(95, 99);
  LatentInputs inputs(4);
  const auto out = Attend(inputs, sequence, {});
  for (int64_t row = 0; row < 4; ++row) {
    std::vector<int32_t> all(96 + row);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t row_head = row * kHeads + head;
      const auto want = AttendPlainly(inputs, sequence, row_head, all);
      for (int64_t d = 0; d < kRank; ++d) ASSERT_NEAR(out[row_head * kRank + d], want[d], 0x1p-24);
    }
  }
}

TEST_F(LatentTest, AttendsToTheSelectedPositionsAndReadsNoOthers) {
  Sequence sequence(95, 97);
  LatentInputs inputs(2);
  const std::vector<int32_t> lists[] = {{0, 7, 8, 60, 95}, {3, 96}};
  for (int32_t position = 0; position < 97; ++position) {
    const auto listed = [&](const auto& list) {
      return std::find(list.begin(), list.end(), position) != list.end();
    };
    if (std::any_of(std::begin(lists), std::end(lists), listed)) continue;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(inputs.latents.data() + sequence.Slot(position) * kRank, kRank, nan);
    std::fill_n(inputs.rope_keys.data() + sequence.Slot(position) * kRope, kRope, nan);
  }
  const auto out = Attend(inputs, sequence, {0, 7, 8, 60, 95, -1, 3, 96, -1, -1, -1, -1});
  for (int64_t row_head = 0; row_head < 2 * kHeads; ++row_head) {
    const auto want = AttendPlainly(inputs, sequence, row_head, lists[row_head / kHeads]);
    for (int64_t d = 0; d < kRank; ++d) ASSERT_NEAR(out[row_head * kRank + d], want[d], 0x1p-24);
  }
}

TEST_F(LatentTest, AListOfAllPositionsIsTheSameBitsAsNone) {
  Sequence sequence(99, 100);
  LatentInputs inputs(1);
  std::vector<int32_t> all(120, -1);
  std::iota(all.begin(), all.begin() + 100, 0);
  EXPECT_EQ(Attend(inputs, sequence, all), Attend(inputs, sequence, {}));
}

constexpr int64_t kIndexHeads = 2;
constexpr int64_t kIndexDim = 10;
constexpr float kIndexScale = 0.5f;

struct IndexInputs {
  explicit IndexInputs(int64_t rows)
      : queries(RandomValues(rows * kIndexHeads * kIndexDim, 5)),
        head_weights(RandomValues(rows * kIndexHeads, 6)),
        keys(RandomValues(kPages * kPage * kIndexDim, 7)) {}

  double Score(int64_t row, int64_t slot) const {
    double sum = 0;
    for (int64_t head = 0; head < kIndexHeads; ++head) {
      const float* query = queries.data() + (row * kIndexHeads + head) * kIndexDim;
      const double dot =
          std::inner_product(query, query + kIndexDim, keys.data() + slot * kIndexDim, 0.0);
      sum += head_weights[row * kIndexHeads + head] * std::max(0.0, kIndexScale * dot);
    }
    return sum;
  }

  std::vector<float> queries, head_weights, keys;
};

class IndexSelectTest : public ReferenceTest {
 protected:
  std::vector<int32_t> Select(IndexInputs& inputs, Sequence& sequence, int64_t top_k) {
    std::vector<int32_t> selected(sequence.rows * top_k, 99);
    Run(ops_.index_select,
        {.queries = Floats(inputs.queries, {sequence.rows, kIndexHeads, kIndexDim}),
         .head_weights = Floats(inputs.head_weights, {sequence.rows, kIndexHeads}),
         .index_cache = Floats(inputs.keys, {kPages, 1, kPage, kIndexDim}),
         .tables = sequence.Tables(),
         .scale = kIndexScale,
         .selected = Ints(selected, {sequence.rows, top_k})});
    return selected;
  }
};

// By sorting everything.
std::vector<int32_t> SelectPlainly(const IndexInputs& inputs, const Sequence& sequence, int64_t row,
                                   int64_t top_k) {
  std::vector<int32_t> order(sequence.positions[row] + 1);
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t position) {
    return static_cast<float>(inputs.Score(row, sequence.Slot(position)));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return score(a) > score(b); });
  order.resize(std::min<size_t>(order.size(), top_k));
  std::sort(order.begin(), order.end());
  order.resize(top_k, -1);
  return order;
}

// Rows that have fewer positions than are selected, as many, and more.
TEST_F(IndexSelectTest, AgreesWithSortingEverything) {
  for (const int64_t top_k : {1, 20, 21, 40, 103, 104, 200}) {
    Sequence sequence(0, 104);
    IndexInputs inputs(104);
    const auto selected = Select(inputs, sequence, top_k);
    for (int64_t row = 0; row < 104; ++row)
      ASSERT_EQ(std::vector<int32_t>(selected.begin() + row * top_k,
                                     selected.begin() + (row + 1) * top_k),
                SelectPlainly(inputs, sequence, row, top_k))
          << "row " << row << ", " << top_k << " selected";
  }
}

TEST_F(IndexSelectTest, TiesGoToTheLowerPosition) {
  Sequence sequence(9, 10);
  IndexInputs inputs(1);
  // Where no head is above zero all scores are zero, whatever the signs of the weights.
  std::fill(inputs.keys.begin(), inputs.keys.end(), 0.0f);
  inputs.head_weights = {-1, 1};
  EXPECT_THAT(Select(inputs, sequence, 3), ElementsAre(0, 1, 2));
  // Head 1 lifts position 4, head 0 sinks position 0.
  const auto set_key = [&](int64_t position, int64_t head) {
    for (int64_t d = 0; d < kIndexDim; ++d)
      inputs.keys[sequence.Slot(position) * kIndexDim + d] = head == 0 && d == 0   ? 1.0f
                                                             : head == 1 && d == 1 ? 1.0f
                                                                                   : 0.0f;
  };
  std::fill(inputs.queries.begin(), inputs.queries.end(), 0.0f);
  inputs.queries[0] = 1;
  inputs.queries[kIndexDim + 1] = 1;
  set_key(0, 0);
  set_key(4, 1);
  EXPECT_THAT(Select(inputs, sequence, 3), ElementsAre(1, 2, 4));
}

TEST_F(IndexSelectTest, ShortRowsSelectAllAndReadNoKey) {
  Sequence sequence(3, 5);
  IndexInputs inputs(2);
  std::fill(inputs.keys.begin(), inputs.keys.end(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(Select(inputs, sequence, 5), ElementsAre(0, 1, 2, 3, -1, 0, 1, 2, 3, 4));
}

class SigmoidRouterTest : public ReferenceTest {
 protected:
  // Logits whose sigmoids are `scores`.
  void Route(const std::vector<double>& scores, std::vector<float> bias, ops::RouterArgs args) {
    std::vector<float> logits;
    for (const double score : scores)
      logits.push_back(static_cast<float>(std::log(score / (1 - score))));
    args.scoring = spec::ExpertScoring::kSigmoid;
    args.logits = Floats(logits, {1, static_cast<int64_t>(logits.size())});
    args.bias = Floats(bias, {static_cast<int64_t>(bias.size())});
    if (bias.empty()) args.bias = {};
    args.expert_ids = Ints(ids_, {1, 2});
    args.expert_weights = Floats(weights_, {1, 2});
    Run(ops_.router, args);
  }
  static auto Near(double value) { return testing::FloatNear(static_cast<float>(value), 1e-6f); }

  std::vector<int32_t> ids_ = std::vector<int32_t>(2);
  std::vector<float> weights_ = std::vector<float>(2);
};

TEST_F(SigmoidRouterTest, TheBiasChoosesButDoesNotWeigh) {
  Route({0.5, 0.6, 0.2, 0.3}, {}, {});
  EXPECT_THAT(ids_, ElementsAre(1, 0));
  EXPECT_THAT(weights_, ElementsAre(Near(0.6 / 1.1), Near(0.5 / 1.1)));
  Route({0.5, 0.6, 0.2, 0.3}, {0, -0.5f, 0.9f, 0}, {.scale = 2.5});
  EXPECT_THAT(ids_, ElementsAre(2, 0));
  EXPECT_THAT(weights_, ElementsAre(Near(2.5 * 0.2 / 0.7), Near(2.5 * 0.5 / 0.7)));
  Route({0.5, 0.6, 0.2, 0.3}, {}, {.normalize_weights = false, .scale = 2});
  EXPECT_THAT(weights_, ElementsAre(Near(1.2), Near(1.0)));
}

// The best expert is in a group whose two best are worse together.
TEST_F(SigmoidRouterTest, GroupsCountByTheirTwoBest) {
  const std::vector<double> scores = {0.9, 0.1, 0.1, 0.6, 0.5, 0.1, 0.5, 0.55, 0.4};
  Route(scores, {}, {.groups = 3, .groups_kept = 1});
  EXPECT_THAT(ids_, ElementsAre(3, 4));
  Route(scores, {}, {.groups = 3, .groups_kept = 2});
  EXPECT_THAT(ids_, ElementsAre(3, 7));
  Route(scores, {}, {.groups = 3, .groups_kept = 3});
  EXPECT_THAT(ids_, ElementsAre(0, 3));
  // Groups of one count by it.
  Route(scores, {}, {.groups = 9, .groups_kept = 2});
  EXPECT_THAT(ids_, ElementsAre(0, 3));
}

// A bias below zero must not let an expert of a dropped group in.
TEST_F(SigmoidRouterTest, OnlyKeptGroupsAreChosenFromWhateverTheBias) {
  Route({0.9, 0.9, 0.5, 0.5}, {-3, -3, -5, -5}, {.groups = 2, .groups_kept = 1});
  EXPECT_THAT(ids_, ElementsAre(0, 1));
}

TEST_F(SigmoidRouterTest, TiesGoToTheLowerGroupAndExpert) {
  Route({0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, {}, {.groups = 3, .groups_kept = 1});
  EXPECT_THAT(ids_, ElementsAre(0, 1));
  Route({0.1, 0.2, 0.5, 0.3, 0.5, 0.3}, {}, {.groups = 3, .groups_kept = 1});
  EXPECT_THAT(ids_, ElementsAre(2, 3));
}

TEST_F(SigmoidRouterTest, ScoresThatVanishGiveNumbers) {
  std::vector<float> logits = {-200, -200};
  Run(ops_.router, {.logits = Floats(logits, {1, 2}),
                    .scoring = spec::ExpertScoring::kSigmoid,
                    .expert_ids = Ints(ids_, {1, 2}),
                    .expert_weights = Floats(weights_, {1, 2})});
  EXPECT_THAT(weights_, ElementsAre(0, 0));
}

TEST_F(ReferenceTest, LayerNormByHand) {
  // Mean 3, variance 4, 16 with epsilon.
  std::vector<float> x = {1, 5, 1, 5};
  std::vector<float> weight = {4, 8, 4, 8};
  std::vector<float> bias = {0.5f, 0, 0, -1};
  Run(ops_.layer_norm, {.x = Floats(x, {1, 4}),
                        .weight = Floats(weight, {4}),
                        .bias = Floats(bias, {4}),
                        .epsilon = 12,
                        .out = Floats(x, {1, 4})});
  EXPECT_THAT(x, ElementsAre(-1.5f, 4, -2, 3));
}

TEST_F(ReferenceTest, HeadLinearMultipliesEveryHeadWithItsOwnMatrix) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};                                  // [2, 2, 2]
  const std::vector<float> matrices[] = {{1, 0, 0, 1, 1, 1}, {2, 0, 0, 2, -1, 1}};  // [3, 2]
  std::vector<std::unique_ptr<ops::PackedWeight>> owned;
  std::vector<const ops::PackedWeight*> weights;
  for (const auto& matrix : matrices) {
    const tensor::ConstView part(matrix.data(), tensor::DType::kF32, {3, 2});
    owned.push_back(
        std::move(backend_.Pack({.parts = {&part, 1}, .compute = tensor::DType::kF32})).value());
    weights.push_back(owned.back().get());
  }
  std::vector<float> out(12);
  Run(ops_.head_linear,
      {.x = Floats(x, {2, 2, 2}), .weights = weights, .out = Floats(out, {2, 2, 3})});
  EXPECT_THAT(out, ElementsAre(1, 2, 3, 6, 8, 1, 5, 6, 11, 14, 16, 1));
}

}  // namespace
}  // namespace longspan::backend::reference
