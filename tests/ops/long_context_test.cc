// A context of a million positions. Its page table repeats a few pages, so that the cache is small
// and the right result is known: what lies at a page counts as often as the page is listed.
#include <algorithm>
#include <numeric>

#include "backend/reference/reference_backend.h"
#include "tests/ops/compare.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;

class LongContextTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongContextTest);
INSTANTIATE_TEST_SUITE_P(, LongContextTest, testing::ValuesIn(AllBackends()), CaseName);

constexpr int64_t kPageSize = 64;
constexpr int64_t kPages = 5;  // of the cache
constexpr int64_t kSlots = kPages * kPageSize;
constexpr int64_t kLong = 1'000'000;
constexpr int64_t kShort = 16'384;
constexpr int64_t kRows = 2;  // the last two positions
constexpr int64_t kHeads = 2;

// The sequence whose every page is one of the cache's.
struct Sequence {
  int64_t length;

  int64_t pages() const { return (length + kPageSize - 1) / kPageSize; }

  // The last page, and one before it, are listed once.
  int64_t PageOf(int64_t position) const {
    const int64_t page = position / kPageSize;
    if (page == pages() - 1) return kPages - 1;
    if (page == pages() / 2) return kPages - 2;
    return page % (kPages - 2);
  }
  int64_t SlotOf(int64_t position) const {
    return PageOf(position) * kPageSize + position % kPageSize;
  }
  int64_t PositionOf(int64_t row) const { return length - kRows + row; }

  ops::StepTables Upload(TestDevice& device) const {
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (int64_t row = 0; row < kRows; ++row) {
      positions.push_back(static_cast<int32_t>(PositionOf(row)));
      slots.push_back(SlotOf(PositionOf(row)));
    }
    std::vector<int32_t> table;
    for (int64_t page = 0; page < pages(); ++page)
      table.push_back(static_cast<int32_t>(PageOf(page * kPageSize)));
    return {.rows = kRows,
            .slices = 1,
            .max_kv_length = length,
            .positions = device.Ints(positions, {kRows}),
            .slots = device.Longs(slots, {kRows}),
            .slice_row_begin = device.Ints({{0, kRows}}, {2}),
            .page_table = device.Ints(table, {1, pages()})};
  }

  // How many of the positions that the row sees lie at every slot.
  std::vector<int64_t> Counts(int64_t row) const {
    std::vector<int64_t> counts(kSlots);
    for (int64_t position = 0; position <= PositionOf(row); ++position) ++counts[SlotOf(position)];
    return counts;
  }
};

// Keys of which the last position's, and one on the page in the middle, outweigh all others
// together where a query is one of the signs: a score of 14 = log(1.2 million).
constexpr int64_t kDim = 16;
constexpr float kScale = 0.25f;
constexpr int64_t kMiddleSlot = (kPages - 2) * kPageSize + 5;

std::vector<float> Signs(int64_t count) {
  auto signs = RandomValues(count, 1);
  for (float& sign : signs) sign = sign < 0 ? -1.0f : 1.0f;
  return signs;
}

std::vector<float> KeysWithNeedles(const Sequence& sequence, DType type) {
  auto keys = RandomValues(kSlots * kDim, 2, 0.5, type);
  const auto signs = Signs(kDim);
  for (int64_t d = 0; d < kDim; ++d) {
    keys[sequence.SlotOf(sequence.length - 1) * kDim + d] = 3.5f * signs[d];
    keys[kMiddleSlot * kDim + d] = 3.25f * signs[d];
  }
  return keys;
}

// The signs for every row and head, the second head's halved.
std::vector<float> Queries() {
  std::vector<float> queries;
  for (int64_t i = 0; i < kRows * kHeads; ++i)
    for (const float sign : Signs(kDim)) queries.push_back(i % kHeads == 0 ? sign : sign / 2);
  return queries;
}

// Softmax over the slots, in double. scores[row * kHeads + head][slot]; values [kSlots, kDim].
void ExpectAttended(std::span<const float> got, const Sequence& sequence,
                    const std::vector<std::vector<double>>& scores, std::span<const float> values,
                    const BackendCase& c) {
  std::vector<float> want;
  std::vector<double> magnitude;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto counts = sequence.Counts(row);
    for (int64_t head = 0; head < kHeads; ++head) {
      std::vector<double> weights(kSlots);
      for (int64_t slot = 0; slot < kSlots; ++slot)
        weights[slot] =
            static_cast<double>(counts[slot]) * std::exp(scores[row * kHeads + head][slot]);
      const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (int64_t d = 0; d < kDim; ++d) {
        double sum = 0;
        double absolute = 0;
        for (int64_t slot = 0; slot < kSlots; ++slot) {
          sum += weights[slot] / all * values[slot * kDim + d];
          absolute += weights[slot] / all * std::abs(values[slot * kDim + d]);
        }
        want.push_back(static_cast<float>(sum));
        magnitude.push_back(absolute);
      }
    }
  }
  const bool in_double = c.backend == &backend::reference::ReferenceBackend();
  ExpectWithin(got, want, [&](int64_t i) {
    if (in_double) return Rounded(want[i], 1e-9 * magnitude[i], DType::kF32);
    return Attention(want[i],
                     {.head_dim = 2 * kDim,  // with a rope key
                      .length = sequence.length,
                      .score_magnitude = 14.25,
                      .value_magnitude = magnitude[i]},
                     c.compute, c.compute == DType::kBf16);
  });
}

// Products are of the compute type, also where the cache holds more.
DType ProductType(const BackendCase& c) {
  return c.compute == DType::kBf16 ? DType::kBf16 : c.kv_cache;
}

double ScoreOf(std::span<const float> queries, int64_t row_and_head, std::span<const float> keys,
               int64_t slot) {
  const auto query = queries.subspan(row_and_head * kDim, kDim);
  return kScale * std::inner_product(query.begin(), query.end(), keys.begin() + slot * kDim, 0.0);
}

// Compute a context of both lengths. run(device, sequence) runs an op and judges its result.
template <typename Run>
void ExpectSameWorkspace(const BackendCase& c, const ops::WorkspaceShape& shape, const Run& run) {
  std::vector<int64_t> peaks;
  for (const int64_t length : {kShort, kLong}) {
    SCOPED_TRACE(length);
    TestDevice device(*c.backend, 2, shape);
    run(device, Sequence{length});
    peaks.push_back(device.context().workspace.peak_bytes());
  }
  EXPECT_GT(peaks[0], 0);
  EXPECT_EQ(peaks[0], peaks[1]);
}

TEST_P(LongContextTest, Attention) {
  const BackendCase& c = GetParam();
  const ops::WorkspaceShape shape = {
      .rows = kRows, .heads = kHeads, .kv_heads = 1, .head_dim = kDim, .page_size = kPageSize};
  ExpectSameWorkspace(c, shape, [&](TestDevice& device, const Sequence& sequence) {
    const auto queries = Queries();
    const auto keys = KeysWithNeedles(sequence, ProductType(c));
    const auto values = RandomValues(kSlots * kDim, 3, 1, ProductType(c));
    const View out = device.Zeros(c.compute, {kRows, kHeads, kDim});
    device.Run(device.ops().attention,
               {.queries = device.Floats(queries, c.compute, {kRows, kHeads, kDim}),
                .key_cache = device.Floats(keys, c.kv_cache, {kPages, 1, kPageSize, kDim}),
                .value_cache = device.Floats(values, c.kv_cache, {kPages, 1, kPageSize, kDim}),
                .tables = sequence.Upload(device),
                .scale = kScale,
                .out = out});
    std::vector<std::vector<double>> scores(kRows * kHeads);
    for (int64_t i = 0; i < kRows * kHeads; ++i)
      for (int64_t slot = 0; slot < kSlots; ++slot)
        scores[i].push_back(ScoreOf(queries, i, keys, slot));
    ExpectAttended(device.ReadFloats(out), sequence, scores, values, c);
  });
}

struct LatentCaches {
  std::vector<float> latents;
  std::vector<float> rope_keys;
};

// Everything of the op but what is attended to. Rope queries are as the latent ones.
ops::LatentAttentionArgs LatentArgs(TestDevice& device, const BackendCase& c,
                                    const LatentCaches& caches) {
  const auto queries = device.Floats(Queries(), c.compute, {kRows, kHeads, kDim});
  const int64_t pages = static_cast<int64_t>(caches.latents.size()) / (kPageSize * kDim);
  return {
      .latent_queries = queries,
      .rope_queries = queries,
      .latent_cache = device.Floats(caches.latents, c.kv_cache, {pages, 1, kPageSize, kDim}),
      .rope_cache = device.Floats(caches.rope_keys, c.kv_cache, {pages, 1, kPageSize, kDim}),
      .scale = kScale,
      .out = device.Zeros(c.compute, {kRows, kHeads, kDim}),
  };
}

LatentCaches MakeLatents(const Sequence& sequence, const BackendCase& c) {
  return {KeysWithNeedles(sequence, ProductType(c)),
          RandomValues(kSlots * kDim, 4, 0.0625, ProductType(c))};
}

constexpr ops::WorkspaceShape kLatentShape = {.rows = kRows,
                                              .heads = kHeads,
                                              .page_size = kPageSize,
                                              .latent_rank = kDim,
                                              .latent_rope_dim = kDim};

TEST_P(LongContextTest, LatentAttention) {
  const BackendCase& c = GetParam();
  ExpectSameWorkspace(c, kLatentShape, [&](TestDevice& device, const Sequence& sequence) {
    const LatentCaches caches = MakeLatents(sequence, c);
    auto args = LatentArgs(device, c, caches);
    args.tables = sequence.Upload(device);
    device.Run(device.ops().latent_attention, args);
    std::vector<std::vector<double>> scores(kRows * kHeads);
    for (int64_t i = 0; i < kRows * kHeads; ++i)
      for (int64_t slot = 0; slot < kSlots; ++slot)
        scores[i].push_back(ScoreOf(Queries(), i, caches.latents, slot) +
                            ScoreOf(Queries(), i, caches.rope_keys, slot));
    ExpectAttended(device.ReadFloats(args.out), sequence, scores, caches.latents, c);
  });
}

// Selected tokens count as a sequence of these tokens would.
TEST_P(LongContextTest, LatentAttentionToSelectedPositions) {
  const BackendCase& c = GetParam();
  constexpr int64_t kTopK = 40;
  ExpectSameWorkspace(c, kLatentShape, [&](TestDevice& device, const Sequence& sequence) {
    const LatentCaches caches = MakeLatents(sequence, c);
    std::vector<int32_t> lists;
    LatentCaches gathered;  // a page for each row
    for (int64_t row = 0; row < kRows; ++row) {
      gathered.latents.resize(row * kPageSize * kDim);
      gathered.rope_keys.resize(row * kPageSize * kDim);
      for (int64_t i = 0; i < kTopK; ++i) {
        const int64_t position = sequence.PositionOf(row) * i / (kTopK - 1);
        const int64_t slot = sequence.SlotOf(position) * kDim;
        lists.push_back(static_cast<int32_t>(position));
        const auto copy = [&](const std::vector<float>& from, std::vector<float>& to) {
          to.insert(to.end(), from.begin() + slot, from.begin() + slot + kDim);
        };
        copy(caches.latents, gathered.latents);
        copy(caches.rope_keys, gathered.rope_keys);
      }
    }
    gathered.latents.resize(kRows * kPageSize * kDim);
    gathered.rope_keys.resize(kRows * kPageSize * kDim);

    auto args = LatentArgs(device, c, caches);
    args.tables = sequence.Upload(device);
    args.selected = device.Ints(lists, {kRows, kTopK});
    device.Run(device.ops().latent_attention, args);
    auto small = LatentArgs(device, c, gathered);
    small.tables = {.rows = kRows,
                    .slices = kRows,
                    .max_kv_length = kTopK,
                    .positions = device.Ints({{kTopK - 1, kTopK - 1}}, {kRows}),
                    .slots = device.Longs({{kTopK - 1, kPageSize + kTopK - 1}}, {kRows}),
                    .slice_row_begin = device.Ints({{0, 1, 2}}, {kRows + 1}),
                    .page_table = device.Ints({{0, 1}}, {kRows, 1})};
    device.Run(device.ops().latent_attention, small);
    EXPECT_EQ(device.ReadFloats(args.out), device.ReadFloats(small.out));
  });
}

TEST_P(LongContextTest, IndexSelect) {
  const BackendCase& c = GetParam();
  constexpr int64_t kTopK = 200;
  const ops::WorkspaceShape shape = {.rows = kRows,
                                     .page_size = kPageSize,
                                     .index_heads = kHeads,
                                     .index_dim = kDim,
                                     .index_top_k = kTopK};
  // Small whole numbers: scores are exact. Those of the pages that are listed once are larger, and
  // the best of the others are so many that the lowest positions of them are left.
  auto queries = RandomValues(kRows * kHeads * kDim, 1, 2);
  auto keys = RandomValues(kSlots * kDim, 2, 2);
  for (auto* values : {&queries, &keys})
    for (float& value : *values) value = std::round(value);
  for (int64_t i = (kPages - 2) * kPageSize * kDim; i < kSlots * kDim; ++i) keys[i] *= 4;
  const std::vector<float> head_weights = {2, 1, 1, 2};
  ExpectSameWorkspace(c, shape, [&](TestDevice& device, const Sequence& sequence) {
    const View selected = device.Zeros(DType::kI32, {kRows, kTopK});
    device.Run(device.ops().index_select,
               {.queries = device.Floats(queries, c.compute, {kRows, kHeads, kDim}),
                .head_weights = device.Floats(head_weights, DType::kF32, {kRows, kHeads}),
                .index_cache = device.Floats(keys, c.kv_cache, {kPages, 1, kPageSize, kDim}),
                .tables = sequence.Upload(device),
                .scale = kScale,
                .selected = selected});
    std::vector<int32_t> want;
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<double> scores(kSlots);
      for (int64_t slot = 0; slot < kSlots; ++slot)
        for (int64_t i = row * kHeads; i < (row + 1) * kHeads; ++i)
          scores[slot] += head_weights[i] * std::max(0.0, ScoreOf(queries, i, keys, slot));
      std::vector<int32_t> best(sequence.PositionOf(row) + 1);
      std::iota(best.begin(), best.end(), 0);
      std::nth_element(best.begin(), best.begin() + kTopK - 1, best.end(),
                       [&](int32_t a, int32_t b) {
                         const double of_a = scores[sequence.SlotOf(a)];
                         const double of_b = scores[sequence.SlotOf(b)];
                         return of_a != of_b ? of_a > of_b : a < b;
                       });
      std::sort(best.begin(), best.begin() + kTopK);
      EXPECT_GT(best[kTopK - 1], sequence.length - kPageSize);
      EXPECT_LT(best[0], sequence.length / 2 - kPageSize);
      want.insert(want.end(), best.begin(), best.begin() + kTopK);
    }
    EXPECT_EQ(device.ReadInts(selected), want);
  });
}

}  // namespace
}  // namespace longspan::op_suite
