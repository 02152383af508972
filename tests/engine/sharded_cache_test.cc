// Context-parallel ranks that divide the cache: other sums than one rank's, the same to rounding.
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/wiring.h"
#include "model/architecture.h"
#include "runtime/stage_group.h"
#include "tests/engine/closeness.h"
#include "tests/engine/indexer_tap.h"
#include "tests/engine/same_bits.h"
#include "tests/support/effort.h"
#include "tests/support/forwarding_backend.h"

namespace longspan::testing {
namespace {

struct Case {
  const char* model;
  Layout layout;  // without backend and type
};

std::string CaseName(const ::testing::TestParamInfo<Case>& param) {
  const Layout& layout = param.param.layout;
  std::string name = fmt::format("{}_cp{}_{}_pp{}x{}_tp{}_ep{}", param.param.model,
                                 layout.context_ranks, layout.token_split, layout.stages,
                                 layout.virtual_stages, layout.tensor_ranks, layout.expert_ranks);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Case Sharded(const char* model, Layout layout) {
  layout.kv_placement = "sharded";
  layout.page_size = 16;
  return {model, layout};
}

int VocabularyOf(const char* model) { return std::string(model).starts_with("tiny-") ? 1024 : 320; }

class ShardedCacheTest : public ::testing::TestWithParam<Case> {};

std::vector<Case> Cases() {
  const Case plain = Sharded(
      "rand-llama", {.stages = 2, .context_ranks = 2, .token_split = "zigzag", .chunk_tokens = 64});
  const Case all_axes = Sharded("rand-deepseek-v32", {.stages = 2,
                                                      .virtual_stages = 2,
                                                      .tensor_ranks = 2,
                                                      .expert_ranks = 4,
                                                      .context_ranks = 2,
                                                      .chunk_tokens = 64});
  // What ranks do with each other's memory is the same for all models.
  if (kSanitized) return {plain, all_axes};
  return {plain,
          all_axes,
          Sharded("rand-llama31", {.tensor_ranks = 2, .context_ranks = 2, .chunk_tokens = 50}),
          Sharded("rand-qwen3", {.context_ranks = 3, .chunk_tokens = 7}),
          Sharded("rand-deepseek-v32",
                  {.context_ranks = 3, .token_split = "zigzag", .chunk_tokens = 40}),
          Sharded("tiny-qwen3-moe", {.stages = 2, .context_ranks = 4, .chunk_tokens = 100}),
          Sharded("tiny-qwen3-moe", {.stages = 2,
                                     .virtual_stages = 2,
                                     .expert_ranks = 2,
                                     .context_ranks = 2,
                                     .chunk_tokens = 64}),
          Sharded("tiny-deepseek-v3",
                  {.context_ranks = 2, .token_split = "zigzag", .chunk_tokens = 64}),
          Sharded("tiny-deepseek-v32", {.context_ranks = 2, .chunk_tokens = 128})};
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedCacheTest, ::testing::ValuesIn(Cases()), CaseName);

// Of one rank that attends to latents in the same form.
TEST_P(ShardedCacheTest, LogitsAreTheSameToRounding) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  for (const char* backend : {"reference", "cpu"}) {
    Layout layout = c.layout;
    layout.backend = backend;
    layout.dtype = "f32";
    const auto one = Start(model, {.backend = backend, .dtype = "f32", .deterministic = true});
    const auto several = Start(model, layout);
    for (const int64_t length : {1, 17, Effort(150, 70)}) {
      const auto ids = RandomIds(length, VocabularyOf(c.model), 3);
      const auto positions = SomePositions(length);
      EXPECT_LE(LargestDifference(Score(*several, ids, positions), Score(*one, ids, positions)),
                1e-5)
          << layout.ToString() << " length " << length;
    }
  }
}

// Decoding, several sequences at once, and a prefix that is there already.
TEST_P(ShardedCacheTest, TokensAreTheSame) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  const auto one = Start(model, {.dtype = "f32"});
  const auto several = Start(model, c.layout);
  std::vector<engine::Request> requests;
  for (uint64_t i = 0; i < 4; ++i) {
    engine::Request& request = requests.emplace_back();
    request.prompt = RandomIds(40, VocabularyOf(c.model), 1);
    const auto more = RandomIds(1 + 11 * static_cast<int64_t>(i), VocabularyOf(c.model), i);
    request.prompt.insert(request.prompt.end(), more.begin(), more.end());
    request.max_tokens = 6;
    request.ignore_end_tokens = true;
  }
  const auto want = Generate(*one, requests);
  const auto got = Generate(*several, requests);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].ids, want[i].ids) << i;
  const Generated hit = Generate(*several, requests[3]);
  EXPECT_GE(hit.cached_tokens, 32);
  EXPECT_EQ(hit.ids, want[3].ids);
}

// The same bits for any cut into chunks that the ranks divide alike, and from run to run.
TEST(ShardedBitsTest, DeterministicRunsRepeatTheirBits) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto ids = RandomIds(150, 1024, 3);
  const auto positions = SomePositions(150);
  Layout layout = {.backend = "cpu",
                   .dtype = "f32",
                   .context_ranks = 3,
                   .kv_placement = "sharded",
                   .chunk_tokens = 60,
                   .page_size = 16,
                   .deterministic = true};
  const Scores want = Score(*Start(model, layout), ids, positions);
  ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
  layout.chunk_tokens = 75;
  layout.threads = 2;
  layout.token_split = "zigzag";
  ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
}

// A value that lies between two of the cache may be rounded to either: that much, and no more.
TEST(ShardedTypesTest, TheCacheMayHaveAnotherType) {
  for (const char* name : {"tiny-qwen3-moe", "rand-deepseek-v32"}) {
    const auto model = ModelFolder(name);
    const auto ids = RandomIds(100, VocabularyOf(name), 3);
    const auto positions = SomePositions(100);
    Layout layout = {.backend = "cpu",
                     .dtype = "f32",
                     .kv_cache_dtype = "bf16",
                     .chunk_tokens = 30,
                     .page_size = 16,
                     .deterministic = true};
    const Scores want = Score(*Start(model, layout), ids, positions);
    layout.context_ranks = 3;
    layout.kv_placement = "sharded";
    EXPECT_LE(LargestDifference(Score(*Start(model, layout), ids, positions), want), 1.0 / 256)
        << name;
  }
}

// Positions that indexers select, of every layer and row.
TEST(ShardedSelectionTest, IsThatOfOneRank) {
  struct SelectionCase {
    const char* model;
    int64_t length;
    int64_t chunk_tokens;
    int ranks;
  };
  for (const auto& [name, length, chunk, ranks] : {SelectionCase{"rand-deepseek-v32", 150, 40, 2},
                                                   {"rand-deepseek-v32", 90, 90, 4},
                                                   {"tiny-deepseek-v32", 280, 110, 3}}) {
    if (IsFixture(name) && kSanitized) continue;
    if (IsFixture(name)) LONGSPAN_REQUIRE_FIXTURES();
    const auto ids = RandomIds(length, VocabularyOf(name), 7);
    TapOptions options = {.model = ModelFolder(name), .chunk_tokens = chunk};
    const TappedRun want = RunTapped(options, ids, SomePositions(length));
    options.context_ranks = ranks;
    const TappedRun got = RunTapped(options, ids, SomePositions(length));
    size_t shorter = 0;
    for (const auto& layer : want.selections)
      for (size_t position = 0; position < layer.size(); ++position)
        shorter += layer[position].size() < position + 1 ? 1 : 0;
    EXPECT_GT(shorter, 0U) << "nothing is selected";
    EXPECT_EQ(got.selections, want.selections) << name << " by " << ranks;
    EXPECT_LE(LargestDifference(got.scores, want.scores), 1e-5) << name << " by " << ranks;
  }
}

// Counts what every rank allocates after it has told what is free: its cache.
class CountingBackend : public support::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  base::Result<tensor::Buffer> Allocate(int64_t bytes) const override {
    const std::lock_guard lock(mutex_);
    bytes_[std::this_thread::get_id()] += bytes;
    return ForwardingBackend::Allocate(bytes);
  }
  int64_t AvailableBytes() const override {
    const std::lock_guard lock(mutex_);
    bytes_[std::this_thread::get_id()] = 0;
    return ForwardingBackend::AvailableBytes();
  }

  int64_t MostBytesOfARank() const {
    const std::lock_guard lock(mutex_);
    int64_t most = 0;
    for (const auto& [rank, bytes] : bytes_) most = std::max(most, bytes);
    return most;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, int64_t> bytes_;
};

// Of the rank that has most, for a cache of so many tokens.
int64_t CacheBytesOfARank(const char* model, int ranks, int64_t tokens) {
  const CountingBackend backend(*apps::FindBackend("cpu").value());
  auto threads = apps::StartRankThreads(
      {.mesh = {.cp = ranks}},
      [&backend](std::string_view) -> base::Result<const ops::Backend*> { return &backend; });
  std::vector<runtime::RankConfig> configs;
  for (int rank = 0; rank < ranks; ++rank)
    configs.push_back({.model_dir = ModelFolder(model).string(),
                       .backend = "cpu",
                       .mesh = {.cp = ranks},
                       .rank = rank,
                       .kv_placement = plan::KvPlacement::kSharded,
                       .ranges = {{0, model::LoadModelSpec(ModelFolder(model))->layers()}},
                       .max_rows = 64,
                       .max_slices = 8,
                       .max_context = tokens});
  const auto group = runtime::StageGroup::BringUp(std::move(threads).value(), configs,
                                                  {.max_total_tokens = tokens});
  EXPECT_TRUE(group.ok()) << group.status().message();
  EXPECT_EQ((*group)->info().capacity_tokens(), tokens);
  return backend.MostBytesOfARank();
}

TEST(ShardedCacheMemoryTest, ARankAllocatesItsShareOfTheCache) {
  for (const char* model : {"rand-llama", "rand-deepseek-v32"}) {
    for (const int64_t tokens : {16384, 20480, 65536}) {
      const auto whole = static_cast<double>(CacheBytesOfARank(model, 1, tokens));
      EXPECT_GT(whole, 0);
      EXPECT_LE(static_cast<double>(CacheBytesOfARank(model, 4, tokens)), 0.27 * whole)
          << model << ' ' << tokens;
    }
  }
}

}  // namespace
}  // namespace longspan::testing
