// Attention on every instruction set that the machine has: right, and the same bits for a row
// whatever comes with it.
#include <cmath>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa_test_fixture.h"
#include "tests/support/paged_step.h"
#include "tests/support/random_values.h"
#include "tests/support/test_device.h"

namespace longspan::backend::cpu {
namespace {

using support::PagedStep;
using support::RandomValues;
using support::SliceRange;
using support::TestDevice;
using tensor::DType;

struct Shape {
  int64_t heads, kv_heads, head_dim, page_size;
  DType compute = DType::kF32;
  DType cache = DType::kF32;
  float scale = 0.2f;
};

ops::WorkspaceShape WorkspaceOf(const Shape& shape) {
  return {.rows = 1000,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .page_size = shape.page_size};
}

// Sequences with their queries, keys and values for every position.
struct Sequences {
  Sequences(const Shape& s, std::vector<int64_t> sequence_lengths)
      : shape(s), lengths(std::move(sequence_lengths)) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      queries.push_back(RandomValues(lengths[i] * s.heads * s.head_dim, 3 * i, 1, s.compute));
      keys.push_back(RandomValues(lengths[i] * s.kv_heads * s.head_dim, 3 * i + 1, 1, s.compute));
      values.push_back(RandomValues(lengths[i] * s.kv_heads * s.head_dim, 3 * i + 2, 1, s.compute));
    }
  }

  Shape shape;
  std::vector<int64_t> lengths;
  std::vector<std::vector<float>> queries, keys, values;
};

// Runs the positions of `slices` in one step over caches that hold all positions.
std::vector<float> Attend(const Sequences& s, std::span<const SliceRange> slices, int threads) {
  const Shape& shape = s.shape;
  TestDevice device(CpuBackend(), threads, WorkspaceOf(shape));
  std::vector<SliceRange> everything;
  std::vector<float> keys, values, queries;
  for (size_t i = 0; i < s.lengths.size(); ++i) {
    everything.push_back({0, s.lengths[i]});
    keys.insert(keys.end(), s.keys[i].begin(), s.keys[i].end());
    values.insert(values.end(), s.values[i].begin(), s.values[i].end());
    const int64_t row = shape.heads * shape.head_dim;
    queries.insert(queries.end(), s.queries[i].begin() + slices[i].begin * row,
                   s.queries[i].begin() + slices[i].end * row);
  }
  const PagedStep fill(everything, s.lengths, shape.page_size, 5);
  const PagedStep step(slices, s.lengths, shape.page_size, 5);
  const ops::StepTables fill_tables = fill.Upload(device);
  const tensor::View key_cache =
      device.Zeros(shape.cache, {fill.pages(), shape.kv_heads, shape.page_size, shape.head_dim});
  const tensor::View value_cache =
      device.Zeros(shape.cache, {fill.pages(), shape.kv_heads, shape.page_size, shape.head_dim});
  const auto write = [&](const std::vector<float>& rows, const tensor::View& cache) {
    device.Run(
        device.ops().cache_write,
        {.x = device.Floats(rows, shape.compute, {fill.rows(), shape.kv_heads, shape.head_dim}),
         .slots = fill_tables.slots,
         .cache = cache});
  };
  write(keys, key_cache);
  write(values, value_cache);
  const tensor::View out = device.Zeros(shape.compute, {step.rows(), shape.heads, shape.head_dim});
  device.Run(
      device.ops().attention,
      {.queries = device.Floats(queries, shape.compute, {step.rows(), shape.heads, shape.head_dim}),
       .key_cache = key_cache,
       .value_cache = value_cache,
       .tables = step.Upload(device),
       .scale = shape.scale,
       .out = out});
  return device.ReadFloats(out);
}

// The same in double, one row and head.
std::vector<double> AttendPlainly(const Sequences& s, size_t sequence, int64_t position,
                                  int64_t head) {
  const Shape& shape = s.shape;
  const int64_t dim = shape.head_dim;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  std::vector<double> out(dim, 0);
  double sum = 0;
  for (int64_t j = 0; j <= position; ++j) {
    double score = 0;
    const float* key = s.keys[sequence].data() + (j * shape.kv_heads + kv_head) * dim;
    const float* value = s.values[sequence].data() + (j * shape.kv_heads + kv_head) * dim;
    const float* query = s.queries[sequence].data() + (position * shape.heads + head) * dim;
    for (int64_t i = 0; i < dim; ++i) score += static_cast<double>(query[i]) * key[i];
    const double p = std::exp(score * shape.scale);
    sum += p;
    for (int64_t i = 0; i < dim; ++i) out[i] += p * value[i];
  }
  for (double& value : out) value /= sum;
  return out;
}

class AttentionTest : public IsaTest {};

// Values are below 1, so an average of them is off by at most the relative error of its weights:
// some roundings of scores below 8 in f32, or of each probability and the result to bf16.
void CheckShape(const Shape& shape) {
  SCOPED_TRACE(fmt::format("{} heads, {} kv, dim {}, page {}, {} over {}", shape.heads,
                           shape.kv_heads, shape.head_dim, shape.page_size,
                           tensor::DTypeName(shape.compute), tensor::DTypeName(shape.cache)));
  const Sequences s(shape, {300, 1, 141});
  const std::vector<SliceRange> slices = {{170, 300}, {0, 1}, {140, 141}};
  const auto got = Attend(s, slices, 2);
  const bool wide = shape.compute == DType::kF32 && shape.cache == DType::kF32;
  const double tolerance = wide ? 2e-5 : 2 * 0x1p-8;
  int64_t row = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    for (int64_t position = slices[i].begin; position < slices[i].end; ++position, ++row) {
      for (int64_t head = 0; head < shape.heads; ++head) {
        const auto want = AttendPlainly(s, i, position, head);
        for (int64_t d = 0; d < shape.head_dim; ++d)
          ASSERT_NEAR(got[(row * shape.heads + head) * shape.head_dim + d], want[d], tolerance)
              << "sequence " << i << " position " << position << " head " << head << " dim " << d;
      }
    }
  }
}

TEST_P(AttentionTest, AgreesWithPlainLoops) {
  CheckShape({.heads = 4, .kv_heads = 2, .head_dim = 64, .page_size = 64});
  CheckShape({.heads = 3, .kv_heads = 3, .head_dim = 16, .page_size = 16});
  CheckShape({.heads = 5, .kv_heads = 1, .head_dim = 80, .page_size = 10});
  CheckShape({.heads = 2, .kv_heads = 1, .head_dim = 6, .page_size = 200});
  for (const DType cache : {DType::kF32, DType::kBf16}) {
    CheckShape({4, 2, 128, 64, DType::kBf16, cache});
    CheckShape({3, 1, 18, 7, DType::kBf16, cache});
  }
  CheckShape({4, 2, 32, 64, DType::kF32, DType::kBf16});
}

TEST_P(AttentionTest, ARowIsTheSameBitsWhateverComesWithIt) {
  for (const DType type : {DType::kF32, DType::kBf16}) {
    const Shape shape{6, 2, 48, 32, type, type, 0.5f};
    const Sequences s(shape, {350, 200});
    const int64_t row = shape.heads * shape.head_dim;
    const auto whole = Attend(s, std::vector<SliceRange>{{0, 350}, {0, 200}}, 1);
    EXPECT_EQ(Attend(s, std::vector<SliceRange>{{0, 350}, {0, 200}}, 3), whole);
    for (const SliceRange slice :
         {SliceRange{37, 38}, {0, 64}, {64, 301}, {349, 350}, {127, 129}}) {
      const auto part = Attend(s, std::vector<SliceRange>{slice, {199, 200}}, 2);
      const auto rows = slice.end - slice.begin;
      EXPECT_EQ(
          std::vector<float>(part.begin(), part.begin() + rows * row),
          std::vector<float>(whole.begin() + slice.begin * row, whole.begin() + slice.end * row));
      EXPECT_EQ(std::vector<float>(part.begin() + rows * row, part.end()),
                std::vector<float>(whole.end() - row, whole.end()));
    }
  }
}

// A decoding row goes another way through the cache than a chunk's rows.
TEST_P(AttentionTest, ADecodingRowIsTheSameBitsAsInAChunk) {
  for (const DType type : {DType::kF32, DType::kBf16}) {
    for (const int64_t group : {1, 2, 4, 5, 7, 8}) {
      for (const int64_t page_size : {16, 100, 200}) {
        const Shape shape{group, 1, 80, page_size, type, type, 0.5f};
        const Sequences s(shape, {301});
        const int64_t row = group * shape.head_dim;
        const auto whole = Attend(s, std::vector<SliceRange>{{0, 301}}, 1);
        for (const int64_t position : {0, 63, 127, 128, 200, 300})
          EXPECT_EQ(Attend(s, std::vector<SliceRange>{{position, position + 1}}, 1),
                    std::vector<float>(whole.begin() + position * row,
                                       whole.begin() + (position + 1) * row))
              << group << " heads, page " << page_size << ", position " << position;
      }
    }
  }
}

// Threads share a long context: its segments are merged as one thread merges them.
TEST_P(AttentionTest, ALongContextIsTheSameBitsForAnyThreads) {
  constexpr int64_t kLength = 4260;
  for (const DType type : {DType::kF32, DType::kBf16}) {
    for (const int64_t page_size : {16, 48, 200}) {
      const Shape shape{6, 2, 32, page_size, type, type, 0.5f};
      const Sequences s(shape, {kLength, 90});
      const int64_t row = shape.heads * shape.head_dim;
      constexpr int64_t kFirst = 4040;
      const auto whole = Attend(s, std::vector<SliceRange>{{kFirst, kLength}, {60, 90}}, 1);
      for (const int64_t position : {kFirst, int64_t{4095}, int64_t{4096}, kLength - 1}) {
        for (const int threads : {1, 2, 5}) {
          const auto decoded =
              Attend(s, std::vector<SliceRange>{{position, position + 1}, {89, 90}}, threads);
          const auto of_position = whole.begin() + (position - kFirst) * row;
          EXPECT_EQ(std::vector<float>(decoded.begin(), decoded.begin() + row),
                    std::vector<float>(of_position, of_position + row))
              << "page " << page_size << ", position " << position << ", " << threads << " threads";
          EXPECT_EQ(std::vector<float>(decoded.begin() + row, decoded.end()),
                    std::vector<float>(whole.end() - row, whole.end()));
        }
      }
      const auto want = AttendPlainly(s, 0, kLength - 1, 4);
      const double tolerance = type == DType::kF32 ? 2e-5 : 2 * 0x1p-8;
      const auto got = whole.begin() + (kLength - 1 - kFirst) * row + 4 * shape.head_dim;
      for (int64_t d = 0; d < shape.head_dim; ++d) ASSERT_NEAR(got[d], want[d], tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionTest, testing::ValuesIn(SupportedIsas()), TestName);

}  // namespace
}  // namespace longspan::backend::cpu
