// A row's result is the same bits alone, in a batch, in chunks of any length, and for any number of
// threads. Runs with ExecutionContext::deterministic set, on every backend.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tests/ops/compare.h"
#include "tests/support/paged_step.h"
#include "tests/support/sampling_rows.h"

namespace longspan::op_suite {
namespace {

using support::PagedStep;
using support::RandomValues;
using support::SliceRange;

class RowIndependenceTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, RowIndependenceTest, testing::ValuesIn(AllBackends()), CaseName);

constexpr int64_t kRows = 150;

// prepare(device) puts there what all steps share and gives a compute(begin, end) that returns rows
// [begin, end) of some result, all of one length. They must not depend on how [0, kRows) is cut nor
// on the threads.
template <typename Prepare>
void ExpectIndependent(const BackendCase& c, const ops::WorkspaceShape& shape,
                       const Prepare& prepare) {
  std::vector<float> whole;
  for (const int threads : {1, 2, 3}) {
    TestDevice device(*c.backend, threads, shape);
    const auto compute = prepare(device);
    for (const int64_t chunk : {kRows, int64_t{1}, int64_t{7}, int64_t{64}}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, chunks of " << chunk);
      std::vector<float> joined;
      for (int64_t begin = 0; begin < kRows; begin += chunk) {
        const auto part = compute(begin, std::min(kRows, begin + chunk));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      if (whole.empty()) whole = joined;
      ASSERT_FALSE(whole.empty());
      // As floats: zeros of both signs would be equal, NaN would not.
      ASSERT_EQ(joined, whole);
    }
  }
}

// Rows [begin, end) of a matrix of kRows rows.
std::span<const float> Part(std::span<const float> values, int64_t begin, int64_t end) {
  const int64_t width = static_cast<int64_t>(values.size()) / kRows;
  return values.subspan(begin * width, (end - begin) * width);
}

TEST_P(RowIndependenceTest, Linear) {
  const DType type = GetParam().compute;
  for (const auto& [columns, features] : {std::pair<int64_t, int64_t>{96, 160}, {127, 65}}) {
    const auto x = RandomValues(kRows * columns, 1, 1, type);
    const ops::WorkspaceShape shape = {.rows = kRows, .max_columns = columns};
    ExpectIndependent(GetParam(), shape, [&, k = columns, n = features](TestDevice& device) {
      const auto* weight = device.Weight(RandomValues(n * k, 2, 1, type), type, n, k);
      const View bias = device.Floats(RandomValues(n, 3), DType::kF32, {n});
      return [&, k, n, weight, bias](int64_t begin, int64_t end) {
        const View out = device.Zeros(type, {end - begin, n});
        device.Run(device.ops().linear,
                   {.x = device.Floats(Part(x, begin, end), type, {end - begin, k}),
                    .weight = weight,
                    .bias = bias,
                    .out = out});
        return device.ReadFloats(out);
      };
    });
  }
}

TEST_P(RowIndependenceTest, RmsNorm) {
  const DType type = GetParam().compute;
  constexpr int64_t kColumns = 97;
  const auto x = RandomValues(kRows * kColumns, 1, 1, type);
  ExpectIndependent(GetParam(), {.rows = kRows}, [&](TestDevice& device) {
    const View weight = device.Floats(RandomValues(kColumns, 2), DType::kF32, {kColumns});
    return [&, weight](int64_t begin, int64_t end) {
      const View view = device.Floats(Part(x, begin, end), type, {end - begin, kColumns});
      device.Run(device.ops().rms_norm, {.x = view, .weight = weight, .out = view});
      return device.ReadFloats(view);
    };
  });
}

TEST_P(RowIndependenceTest, SiluMul) {
  const DType type = GetParam().compute;
  constexpr int64_t kColumns = 45;
  const auto x = RandomValues(kRows * 2 * kColumns, 1, 4, type);
  ExpectIndependent(GetParam(), {.rows = kRows}, [&](TestDevice& device) {
    return [&](int64_t begin, int64_t end) {
      const int64_t rows = end - begin;
      const View out = device.Zeros(type, {rows, kColumns});
      device.Run(
          device.ops().silu_mul,
          {.gate_up = device.Floats(Part(x, begin, end), type, {rows, 2 * kColumns}), .out = out});
      return device.ReadFloats(out);
    };
  });
}

TEST_P(RowIndependenceTest, RopeWithItsTable) {
  const DType type = GetParam().compute;
  constexpr int64_t kHeads = 3;
  constexpr int64_t kPairs = 40;
  const auto x = RandomValues(kRows * kHeads * 2 * kPairs, 1, 1, type);
  const ops::WorkspaceShape shape = {.rows = kRows, .heads = kHeads, .head_dim = 2 * kPairs};
  ExpectIndependent(GetParam(), shape, [&](TestDevice& device) {
    const View frequencies =
        device.Floats(support::Magnitudes(RandomValues(kPairs, 2)), DType::kF32, {kPairs});
    return [&, frequencies](int64_t begin, int64_t end) {
      const int64_t rows = end - begin;
      std::vector<int32_t> positions(rows);
      std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
      const View cosines = device.Zeros(DType::kF32, {rows, kPairs});
      const View sines = device.Zeros(DType::kF32, {rows, kPairs});
      device.Run(device.ops().rope_table, {.positions = device.Ints(positions, {rows}),
                                           .inverse_frequencies = frequencies,
                                           .cosines = cosines,
                                           .sines = sines});
      const View view = device.Floats(Part(x, begin, end), type, {rows, kHeads, 2 * kPairs});
      device.Run(device.ops().rope, {.x = view, .cosines = cosines, .sines = sines});
      return device.ReadFloats(view);
    };
  });
}

constexpr int64_t kHeads = 6;
constexpr int64_t kKvHeads = 2;

struct CacheShape {
  int64_t head_dim;
  int64_t page_size;
  int64_t prefix;  // tokens before the first row
};

// Two sequences of equal length: rows [begin, end) of the first, and `others` of the second.
PagedStep MakeStep(const CacheShape& shape, int64_t begin, int64_t end, SliceRange others) {
  const std::vector<SliceRange> slices = {{shape.prefix + begin, shape.prefix + end}, others};
  const std::vector<int64_t> lengths(2, shape.prefix + kRows);
  return {slices, lengths, shape.page_size, 11};
}

std::vector<float> Attend(TestDevice& device, std::span<const float> queries,
                          const View (&caches)[2], const PagedStep& step, DType type) {
  const int64_t head_dim = caches[0].size(3);
  const View out = device.Zeros(type, {step.rows(), kHeads, head_dim});
  device.Run(device.ops().attention,
             {.queries = device.Floats(queries, type, {step.rows(), kHeads, head_dim}),
              .key_cache = caches[0],
              .value_cache = caches[1],
              .tables = step.Upload(device),
              .scale = 0.125f,
              .out = out});
  return device.ReadFloats(out);
}

void ExpectIndependentAttention(const BackendCase& c, const CacheShape& shape) {
  constexpr int64_t kOthers = 8;
  const int64_t width = kHeads * shape.head_dim;
  const int64_t pages = MakeStep(shape, 0, 1, {0, 0}).pages();
  const int64_t elements = pages * kKvHeads * shape.page_size * shape.head_dim;
  const auto queries = RandomValues(kRows * width, 1, 3, c.compute);
  const auto others = RandomValues(kOthers * width, 4, 1, c.compute);
  const ops::WorkspaceShape workspace = {.rows = kRows + kOthers,
                                         .heads = kHeads,
                                         .kv_heads = kKvHeads,
                                         .head_dim = shape.head_dim,
                                         .page_size = shape.page_size};
  ExpectIndependent(c, workspace, [&](TestDevice& device) {
    const auto cache = [&](uint64_t seed) {
      return device.Floats(RandomValues(elements, seed, 1, c.kv_cache), c.kv_cache,
                           {pages, kKvHeads, shape.page_size, shape.head_dim});
    };
    return [&, keys = cache(2), values = cache(3)](int64_t begin, int64_t end) {
      const View caches[] = {keys, values};
      const auto own = Part(queries, begin, end);
      const auto alone =
          Attend(device, own, caches, MakeStep(shape, begin, end, {0, 0}), c.compute);
      // Rows of another sequence in the same step change nothing.
      std::vector<float> both(own.begin(), own.end());
      both.insert(both.end(), others.begin(), others.end());
      auto together =
          Attend(device, both, caches, MakeStep(shape, begin, end, {60, 60 + kOthers}), c.compute);
      together.resize(alone.size());
      EXPECT_EQ(together, alone);
      return alone;
    };
  });
}

TEST_P(RowIndependenceTest, Attention) {
  for (const CacheShape& shape : {CacheShape{16, 16, 0}, {128, 64, 37}, {40, 64, 0}})
    ExpectIndependentAttention(GetParam(), shape);
}

// Without lists of `top_k` positions: dense.
void ExpectIndependentLatentAttention(const BackendCase& c, int64_t prefix, int64_t top_k) {
  constexpr int64_t kRank = 48;
  constexpr int64_t kRope = 16;
  constexpr int64_t kIndexDim = 32;
  const auto latent_queries = RandomValues(kRows * kHeads * kRank, 1, 3, c.compute);
  const auto rope_queries = RandomValues(kRows * kHeads * kRope, 2, 3, c.compute);
  const auto index_queries = RandomValues(kRows * kHeads * kIndexDim, 3, 1, c.compute);
  const auto head_weights = RandomValues(kRows * kHeads, 4);
  const CacheShape shape = {kRank, 16, prefix};
  const int64_t pages = MakeStep(shape, 0, 1, {0, 0}).pages();
  const ops::WorkspaceShape workspace = {.rows = kRows,
                                         .heads = kHeads,
                                         .page_size = shape.page_size,
                                         .latent_rank = kRank,
                                         .latent_rope_dim = kRope,
                                         .index_heads = kHeads,
                                         .index_dim = kIndexDim,
                                         .index_top_k = top_k};
  ExpectIndependent(c, workspace, [&](TestDevice& device) {
    const auto cache = [&](uint64_t seed, int64_t dim) {
      return device.Floats(RandomValues(pages * shape.page_size * dim, seed, 1, c.kv_cache),
                           c.kv_cache, {pages, 1, shape.page_size, dim});
    };
    return [&, latents = cache(5, kRank), ropes = cache(6, kRope), keys = cache(7, kIndexDim)](
               int64_t begin, int64_t end) {
      const int64_t rows = end - begin;
      const auto tables = MakeStep(shape, begin, end, {0, 0}).Upload(device);
      const auto queries = [&](std::span<const float> values, int64_t dim) {
        return device.Floats(Part(values, begin, end), c.compute, {rows, kHeads, dim});
      };
      View selected;
      if (top_k > 0) {
        selected = device.Zeros(DType::kI32, {rows, top_k});
        device.Run(device.ops().index_select,
                   {.queries = queries(index_queries, kIndexDim),
                    .head_weights =
                        device.Floats(Part(head_weights, begin, end), DType::kF32, {rows, kHeads}),
                    .index_cache = keys,
                    .tables = tables,
                    .selected = selected});
      }
      const View out = device.Zeros(c.compute, {rows, kHeads, kRank});
      device.Run(device.ops().latent_attention, {.latent_queries = queries(latent_queries, kRank),
                                                 .rope_queries = queries(rope_queries, kRope),
                                                 .latent_cache = latents,
                                                 .rope_cache = ropes,
                                                 .tables = tables,
                                                 .scale = 0.125f,
                                                 .selected = selected,
                                                 .out = out});
      return device.ReadFloats(out);
    };
  });
}

TEST_P(RowIndependenceTest, LatentAttentionToSelectedPositions) {
  for (const int64_t top_k : {0, 50}) ExpectIndependentLatentAttention(GetParam(), 37, top_k);
}

// Contexts that a backend may divide among its threads.
class LongRowIndependenceTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, LongRowIndependenceTest, testing::ValuesIn(ComparedBackends()),
                         CaseName);

// Rows behind it see two or three segments of the CPU backend's.
constexpr int64_t kLongPrefix = 4020;

TEST_P(LongRowIndependenceTest, Attention) {
  ExpectIndependentAttention(GetParam(), {16, 64, kLongPrefix});
}

TEST_P(LongRowIndependenceTest, LatentAttention) {
  ExpectIndependentLatentAttention(GetParam(), kLongPrefix, 0);
}

constexpr int64_t kColumns = 72;
constexpr int64_t kExperts = 6;
constexpr int64_t kChoices = 2;

// A whole layer of experts.
std::vector<float> ApplyExperts(TestDevice& device, std::span<const float> x,
                                std::span<const float> logits,
                                std::span<const ops::PackedWeight* const> weights, DType type) {
  const auto& ops = device.ops();
  const int64_t rows = static_cast<int64_t>(x.size()) / kColumns;
  const View ids = device.Zeros(DType::kI32, {rows, kChoices});
  const View expert_weights = device.Zeros(DType::kF32, {rows, kChoices});
  device.Run(ops.router, {.logits = device.Floats(logits, DType::kF32, {rows, kExperts}),
                          .expert_ids = ids,
                          .expert_weights = expert_weights});
  const View expert_begin = device.Zeros(DType::kI32, {kExperts + 1});
  const View source_rows = device.Zeros(DType::kI32, {rows * kChoices});
  const View places = device.Zeros(DType::kI32, {rows, kChoices});
  device.Run(ops.expert_order, {.expert_ids = ids,
                                .expert_begin = expert_begin,
                                .source_rows = source_rows,
                                .sorted_places = places});
  const View products = device.Zeros(type, {rows * kChoices, kColumns});
  device.Run(ops.grouped_linear, {.x = device.Floats(x, type, {rows, kColumns}),
                                  .weights = weights,
                                  .expert_begin = expert_begin,
                                  .source_rows = source_rows,
                                  .out = products});
  const View out = device.Zeros(type, {rows, kColumns});
  device.Run(
      ops.expert_combine,
      {.x = products, .sorted_places = places, .expert_weights = expert_weights, .out = out});
  return device.ReadFloats(out);
}

TEST_P(RowIndependenceTest, Experts) {
  const DType type = GetParam().compute;
  const auto x = RandomValues(kRows * kColumns, 1, 1, type);
  const auto logits = RandomValues(kRows * kExperts, 2, 3);
  const ops::WorkspaceShape shape = {
      .rows = kRows, .max_columns = kColumns, .experts = kExperts, .experts_per_token = kChoices};
  ExpectIndependent(GetParam(), shape, [&](TestDevice& device) {
    std::vector<const ops::PackedWeight*> weights;
    for (int64_t expert = 0; expert < kExperts; ++expert)
      weights.push_back(device.Weight(RandomValues(kColumns * kColumns, 10 + expert, 1, type), type,
                                      kColumns, kColumns));
    return [&, weights](int64_t begin, int64_t end) {
      return ApplyExperts(device, Part(x, begin, end), Part(logits, begin, end), weights, type);
    };
  });
}

TEST_P(RowIndependenceTest, Sampling) {
  constexpr int64_t kVocab = 333;
  const auto logits = RandomValues(kRows * kVocab, 1, 5);
  const ops::WorkspaceShape shape = {.rows = kRows, .logit_rows = kRows, .vocab_size = kVocab};
  ExpectIndependent(GetParam(), shape, [&](TestDevice& device) {
    return [&](int64_t begin, int64_t end) {
      std::vector<support::SamplingRow> rows;
      for (int64_t row = begin; row < end; ++row) {
        const spec::SamplingSpec spec = {.temperature = static_cast<double>(row % 3) * 0.7,
                                         .top_k = static_cast<int>(row % 5 * 10),
                                         .top_p = row % 2 == 0 ? 1 : 0.9,
                                         .seed = 5};
        rows.push_back({.spec = spec, .position = row});
      }
      const auto sampled = support::SampleRows(device, Part(logits, begin, end), rows);
      // Interleaved, so that a row's numbers stay together.
      std::vector<float> paired;
      for (size_t i = 0; i < rows.size(); ++i) {
        paired.push_back(static_cast<float>(sampled.tokens[i]));
        paired.push_back(sampled.logprobs[i]);
      }
      return paired;
    };
  });
}

}  // namespace
}  // namespace longspan::op_suite
