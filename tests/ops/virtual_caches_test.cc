// Caches of more than 2^32 elements whose pages in use lie from the first to the last: every op
// computes the same bits there as in a cache of those pages only. Queries, lists and results have
// rows that far apart too.
#include "tests/ops/compare.h"
#include "tests/ops/virtual_memory.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;

class VirtualCachesTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VirtualCachesTest);
INSTANTIATE_TEST_SUITE_P(, VirtualCachesTest, testing::ValuesIn(AllBackends()), CaseName);

constexpr int64_t kPageSize = 16;
constexpr int64_t kRows = 3;
constexpr int64_t kHeads = 2;

// Two rows at the end of one sequence, one at the end of another.
constexpr int32_t kPositions[kRows] = {148, 149, 39};
constexpr int32_t kSliceRowBegin[] = {0, 2, kRows};
constexpr int64_t kTablePages = 10;  // of the longer sequence
constexpr int64_t kPages = kTablePages + 3;

// The pages in use, in a cache of their own or spread over a large one, and its tables.
class Pages {
 public:
  // The first and the last page lie at least `span` elements apart in a plane with pages of so many
  // elements.
  Pages(Arguments& args, int64_t page_elements, int64_t span = int64_t{1} << 32)
      : args_(args),
        step_(args.far() ? (span + page_elements - 1) / page_elements / (kPages - 1) + 1 : 1) {}

  int64_t id(int64_t page) const { return page * step_; }

  // A plane that holds `values` [kPages, heads, kPageSize, dim].
  View Cache(std::span<const float> values, DType type, int64_t heads, int64_t dim) {
    const int64_t elements = heads * kPageSize * dim;
    const int64_t pages = id(kPages - 1) + 1;
    View cache;
    if (args_.far()) {
      memory_.push_back(std::make_unique<VirtualMemory>(pages * elements * tensor::SizeOf(type)));
      cache = memory_.back()->At(0, type, {pages, heads, kPageSize, dim});
    } else {
      cache = args_.device().Zeros(type, {pages, heads, kPageSize, dim});
    }
    for (int64_t page = 0; page < kPages; ++page)
      Store(args_.device(), values.subspan(page * elements, elements), cache.Rows(id(page), 1));
    return cache;
  }

  // What the pages in use hold.
  std::vector<float> Read(const View& cache) {
    std::vector<float> values;
    for (int64_t page = 0; page < kPages; ++page) {
      const auto read = args_.device().ReadFloats(cache.Rows(id(page), 1));
      values.insert(values.end(), read.begin(), read.end());
    }
    return values;
  }

  ops::StepTables Tables() {
    std::vector<int32_t> page_table;
    for (int64_t page = 0; page < 2 * kTablePages; ++page)
      page_table.push_back(static_cast<int32_t>(id(std::min(page, kPages - 1))));
    std::vector<int64_t> slots;
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t first_page = row < kSliceRowBegin[1] ? 0 : kTablePages;
      slots.push_back(id(first_page + kPositions[row] / kPageSize) * kPageSize +
                      kPositions[row] % kPageSize);
    }
    TestDevice& device = args_.device();
    return {.rows = kRows,
            .slices = 2,
            .max_kv_length = 150,
            .positions = device.Ints(kPositions, {kRows}),
            .slots = device.Longs(slots, {kRows}),
            .slice_row_begin = device.Ints(kSliceRowBegin, {3}),
            .page_table = args_.Ints(page_table, {2, kTablePages})};
  }

 private:
  Arguments& args_;
  int64_t step_;
  std::vector<std::unique_ptr<VirtualMemory>> memory_;
};

std::vector<float> CacheValues(int64_t width, uint64_t seed, DType type) {
  return RandomValues(kPages * kPageSize * width, seed, 1, type);
}

TEST_P(VirtualCachesTest, CacheWrite) {
  const BackendCase& c = GetParam();
  constexpr int64_t kDim = 24;
  const auto x = RandomValues(kRows * kHeads * kDim, 1, 1, c.compute);
  const auto old = CacheValues(kHeads * kDim, 2, c.kv_cache);
  ExpectSameBits(c, {.rows = kRows}, [&](Arguments& args) {
    Pages pages(args, kHeads * kPageSize * kDim);
    const View cache = pages.Cache(old, c.kv_cache, kHeads, kDim);
    args.device().Run(args.device().ops().cache_write,
                      {.x = args.Floats(x, c.compute, {kRows, kHeads, kDim}),
                       .slots = pages.Tables().slots,
                       .cache = cache});
    const auto written = pages.Read(cache);
    EXPECT_NE(written, old);
    return written;
  });
}

TEST_P(VirtualCachesTest, CacheWriteToSlotsBeyond32Bits) {
  const BackendCase& c = GetParam();
  constexpr int64_t kDim = 1;
  const auto x = RandomValues(kRows * kDim, 1, 1, c.compute);
  const auto old = CacheValues(kDim, 2, c.kv_cache);
  ExpectSameBits(c, {.rows = kRows}, [&](Arguments& args) {
    Pages pages(args, kPageSize * kDim, int64_t{1} << 33);
    const View cache = pages.Cache(old, c.kv_cache, 1, kDim);
    const auto tables = pages.Tables();
    const int64_t first_slot = tables.slots.data<int64_t>()[0];
    EXPECT_EQ(first_slot > int64_t{1} << 32, args.far());
    args.device().Run(
        args.device().ops().cache_write,
        {.x = args.Floats(x, c.compute, {kRows, 1, kDim}), .slots = tables.slots, .cache = cache});
    const auto written = pages.Read(cache);
    EXPECT_NE(written, old);
    return written;
  });
}

TEST_P(VirtualCachesTest, Attention) {
  const BackendCase& c = GetParam();
  constexpr int64_t kDim = 48;
  const auto queries = RandomValues(kRows * kHeads * kDim, 1, 3, c.compute);
  for (const int64_t kv_heads : {1, 2}) {
    const auto keys = CacheValues(kv_heads * kDim, 2, c.kv_cache);
    const auto values = CacheValues(kv_heads * kDim, 3, c.kv_cache);
    const ops::WorkspaceShape shape = {.rows = kRows,
                                       .heads = kHeads,
                                       .kv_heads = kv_heads,
                                       .head_dim = kDim,
                                       .page_size = kPageSize};
    ExpectSameBits(c, shape, [&](Arguments& args) {
      Pages pages(args, kv_heads * kPageSize * kDim);
      const View out = args.Out(c.compute, {kRows, kHeads, kDim});
      args.device().Run(args.device().ops().attention,
                        {.queries = args.Floats(queries, c.compute, {kRows, kHeads, kDim}),
                         .key_cache = pages.Cache(keys, c.kv_cache, kv_heads, kDim),
                         .value_cache = pages.Cache(values, c.kv_cache, kv_heads, kDim),
                         .tables = pages.Tables(),
                         .scale = 0.125f,
                         .out = out});
      return args.ReadFloats(out);
    });
  }
}

// Some positions of every row, its first and its last among them.
std::vector<int32_t> Lists(int64_t top_k) {
  std::vector<int32_t> lists;
  for (const int32_t position : kPositions)
    for (int64_t i = 0; i < top_k; ++i)
      lists.push_back(static_cast<int32_t>(position * i / (top_k - 1)));
  return lists;
}

TEST_P(VirtualCachesTest, LatentAttention) {
  const BackendCase& c = GetParam();
  constexpr int64_t kRank = 48;
  constexpr int64_t kRope = 32;
  constexpr int64_t kTopK = 20;
  const auto latent_queries = RandomValues(kRows * kHeads * kRank, 1, 3, c.compute);
  const auto rope_queries = RandomValues(kRows * kHeads * kRope, 2, 3, c.compute);
  const auto latents = CacheValues(kRank, 3, c.kv_cache);
  const auto rope_keys = CacheValues(kRope, 4, c.kv_cache);
  const ops::WorkspaceShape shape = {.rows = kRows,
                                     .heads = kHeads,
                                     .page_size = kPageSize,
                                     .latent_rank = kRank,
                                     .latent_rope_dim = kRope};
  for (const bool selected : {false, true}) {
    ExpectSameBits(c, shape, [&](Arguments& args) {
      Pages pages(args, kPageSize * kRope);
      const View out = args.Out(c.compute, {kRows, kHeads, kRank});
      args.device().Run(
          args.device().ops().latent_attention,
          {.latent_queries = args.Floats(latent_queries, c.compute, {kRows, kHeads, kRank}),
           .rope_queries = args.Floats(rope_queries, c.compute, {kRows, kHeads, kRope}),
           .latent_cache = pages.Cache(latents, c.kv_cache, 1, kRank),
           .rope_cache = pages.Cache(rope_keys, c.kv_cache, 1, kRope),
           .tables = pages.Tables(),
           .scale = 0.125f,
           .selected = selected ? ConstView(args.Ints(Lists(kTopK), {kRows, kTopK})) : ConstView(),
           .out = out});
      return args.ReadFloats(out);
    });
  }
}

TEST_P(VirtualCachesTest, ExpandedLatentAttention) {
  const BackendCase& c = GetParam();
  constexpr int64_t kRank = 48;
  constexpr int64_t kRope = 32;
  constexpr int64_t kNope = 16;
  constexpr int64_t kValue = 24;
  const auto queries = RandomValues(kRows * kHeads * (kNope + kRope), 1, 3, c.compute);
  const auto latents = CacheValues(kRank, 3, c.kv_cache);
  const auto rope_keys = CacheValues(kRope, 4, c.kv_cache);
  const ops::WorkspaceShape shape = {.rows = kRows,
                                     .heads = kHeads,
                                     .page_size = kPageSize,
                                     .latent_rank = kRank,
                                     .latent_rope_dim = kRope,
                                     .latent_nope_dim = kNope,
                                     .latent_value_dim = kValue};
  ExpectSameBits(c, shape, [&](Arguments& args) {
    TestDevice& device = args.device();
    const auto weights = [&](int64_t rows, uint64_t seed) {
      std::vector<const ops::PackedWeight*> heads;
      for (int64_t head = 0; head < kHeads; ++head)
        heads.push_back(
            device.Weight(RandomValues(rows * kRank, seed + head), c.compute, rows, kRank));
      return heads;
    };
    const auto key_weights = weights(kNope, 10);
    const auto value_weights = weights(kValue, 20);
    Pages pages(args, kPageSize * kRope);
    const View out = args.Out(c.compute, {kRows, kHeads, kValue});
    device.Run(device.ops().expanded_latent_attention,
               {.queries = args.Floats(queries, c.compute, {kRows, kHeads, kNope + kRope}),
                .latent_cache = pages.Cache(latents, c.kv_cache, 1, kRank),
                .rope_cache = pages.Cache(rope_keys, c.kv_cache, 1, kRope),
                .key_weights = key_weights,
                .value_weights = value_weights,
                .tables = pages.Tables(),
                .scale = 0.125f,
                .out = out});
    return args.ReadFloats(out);
  });
}

TEST_P(VirtualCachesTest, IndexSelect) {
  const BackendCase& c = GetParam();
  constexpr int64_t kDim = 32;
  constexpr int64_t kTopK = 20;
  const auto queries = RandomValues(kRows * kHeads * kDim, 1, 1, c.compute);
  const auto head_weights = RandomValues(kRows * kHeads, 2);
  const auto keys = CacheValues(kDim, 3, c.kv_cache);
  const ops::WorkspaceShape shape = {.rows = kRows,
                                     .page_size = kPageSize,
                                     .index_heads = kHeads,
                                     .index_dim = kDim,
                                     .index_top_k = kTopK};
  ExpectSameBits(c, shape, [&](Arguments& args) {
    Pages pages(args, kPageSize * kDim);
    const View selected = args.Out(DType::kI32, {kRows, kTopK});
    args.device().Run(args.device().ops().index_select,
                      {.queries = args.Floats(queries, c.compute, {kRows, kHeads, kDim}),
                       .head_weights = args.Floats(head_weights, DType::kF32, {kRows, kHeads}),
                       .index_cache = pages.Cache(keys, c.kv_cache, 1, kDim),
                       .tables = pages.Tables(),
                       .scale = 0.25f,
                       .selected = selected});
    const auto positions = args.ReadInts(selected);
    return std::vector<float>(positions.begin(), positions.end());
  });
}

}  // namespace
}  // namespace longspan::op_suite
