// What context-parallel ranks exchange: the rows of each other's caches, and no byte more than the
// formula says.
#include <numeric>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "comm/in_process/in_process.h"
#include "model/cache_writes.h"
#include "plan/context_volume.h"
#include "runtime/rank_groups.h"

namespace longspan::runtime {
namespace {

using tensor::DType;
using tensor::View;

constexpr int kRanks = 3;
constexpr int64_t kHeads = 2;
constexpr int64_t kDim = 5;
constexpr int64_t kPages = 4;
constexpr int64_t kPageSize = 4;
constexpr int64_t kRowElements = kHeads * kDim;

// All rows of a step, by rank: the second has none.
const std::vector<int64_t> kCounts = {3, 0, 2};
const std::vector<int64_t> kSlots = {0, 5, 2, 15, 7};
constexpr int64_t kRows = 5;

std::vector<float> Numbered(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<RankLinks> Connect() {
  std::vector<RankLinks> links(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (size_t peer = rank + 1; peer < kRanks; ++peer) {
      auto [here, there] = comm::CreateInProcessLinkPair();
      links[rank].stage_peers.push_back(std::move(here));
      links[peer].stage_peers.push_back(std::move(there));
    }
  }
  return links;
}

// One rank, and its cache of keys and values.
class Rank {
 public:
  Rank(int rank, const RankLinks& links)
      : rank_(rank),
        groups_({.mesh = {.cp = kRanks}, .rank = rank}, links),
        first_(std::accumulate(kCounts.begin(), kCounts.begin() + rank, int64_t{0})) {
    for (int plane : {kv::kKeyPlane, kv::kValuePlane})
      cache_.planes[plane] =
          View(memory_[plane].data(), DType::kF32, {kPages, kHeads, kPageSize, kDim});
    std::iota(places_.begin(), places_.end(), int64_t{0});
    writes_.emplace(step_, cache_, scratch_);
  }

  // Keys and values of all rows are here; only the own ones are looked at.
  void Start(std::vector<float>& keys, std::vector<float>& values) {
    const auto own = [&](std::vector<float>& all) {
      return View(all.data() + first_ * kRowElements, DType::kF32, {count(), kHeads, kDim});
    };
    writes_->Start({{kv::kKeyPlane, own(keys)}, {kv::kValuePlane, own(values)}});
  }
  void Finish() { writes_->Finish(); }

  int64_t count() const { return kCounts[static_cast<size_t>(rank_)]; }
  const RankGroups& groups() const { return groups_; }
  const std::vector<float>& memory(int plane) const { return memory_[plane]; }

 private:
  int rank_;
  RankGroups groups_;
  int64_t first_;
  std::vector<int64_t> slots_ = kSlots;
  std::vector<int64_t> places_ = std::vector<int64_t>(kRows);
  std::vector<float> memory_[2] = {std::vector<float>(kPages * kPageSize * kRowElements),
                                   std::vector<float>(kPages* kPageSize* kRowElements)};
  model::LayerCache cache_;
  std::unique_ptr<tensor::Queue> queue_ =
      backend::reference::ReferenceBackend().CreateQueue({.threads = 1}).value();
  tensor::Workspace workspace_ = tensor::Workspace(tensor::AllocateHost(1 << 16).value());
  tensor::ExecutionContext context_ = {*queue_, workspace_};
  model::Step step_ = {context_,
                       backend::reference::ReferenceBackend().ops(),
                       groups_,
                       {},
                       {},
                       {},
                       {},
                       {.rank = rank_,
                        .counts = kCounts,
                        .own_places = View(places_.data(), DType::kI64, {count()}),
                        .slots = View(slots_.data(), DType::kI64, {kRows})}};
  tensor::Workspace::Scope scratch_{workspace_};
  std::optional<model::CacheWrites> writes_;
};

TEST(ContextGatherTest, EveryRankGetsTheCacheOfAll) {
  const std::vector<RankLinks> links = Connect();
  std::vector<float> keys = Numbered(kRows * kRowElements, 1);
  std::vector<float> values = Numbered(kRows * kRowElements, 1000);
  std::vector<float> want(kPages * kPageSize * kRowElements);
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t head = 0; head < kHeads; ++head)
      for (int64_t i = 0; i < kDim; ++i) {
        const int64_t slot = kSlots[static_cast<size_t>(row)];
        const int64_t token = (slot / kPageSize * kHeads + head) * kPageSize + slot % kPageSize;
        want[static_cast<size_t>(token * kDim + i)] =
            keys[static_cast<size_t>(row * kRowElements + head * kDim + i)];
      }
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(std::make_unique<Rank>(rank, links[static_cast<size_t>(rank)]));
  for (const auto& rank : ranks) rank->Start(keys, values);
  for (const auto& rank : ranks) rank->Finish();

  const spec::ModelSpec model = {
      .attention = {.heads = kHeads, .kv_heads = kHeads, .head_dim = kDim}};
  const double per_token = plan::ReplicatedVolume(model, kRanks, 4, 4).per_token_layer;
  int64_t received = 0;
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->groups().status().ok());
    EXPECT_EQ(rank->memory(kv::kKeyPlane), want);
    std::vector<float> want_values = want;
    for (float& value : want_values) value += value > 0 ? 999 : 0;
    EXPECT_EQ(rank->memory(kv::kValuePlane), want_values);
    const int64_t bytes = rank->groups().context_group()->received_bytes();
    EXPECT_EQ(bytes, (kRows - rank->count()) * 2 * kRowElements * 4);
    received += bytes;
  }
  EXPECT_DOUBLE_EQ(static_cast<double>(received) / kRanks, kRows * per_token);
}

// DeepSeek-V3.2 in bf16: 512 + 64 + 128 elements.
TEST(ContextGatherTest, VolumesAreThoseOfTheCache) {
  spec::ModelSpec model = {.hidden_size = 7168};
  model.latent_attention = {.latent_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  model.indexer = {.heads = 64, .head_dim = 128};
  const plan::ContextVolume volume = plan::ReplicatedVolume(model, 4, 2, 2);
  EXPECT_DOUBLE_EQ(volume.per_token_layer, 1408 * 0.75);
  EXPECT_DOUBLE_EQ(volume.per_listed_row, 7168 * 2 * 0.75);
  EXPECT_EQ(plan::ReplicatedVolume(model, 1, 2, 2).per_token_layer, 0);
  EXPECT_EQ(volume.per_selecting_token_layer, 0);
  model.latent_attention->heads = 128;
  model.indexer->top_k = 2048;
  const plan::ContextVolume sharded = plan::ShardedVolume(model, 4, 2, 2);
  EXPECT_DOUBLE_EQ(sharded.per_token_layer,
                   0.75 * (1408 / 4.0 + 128 * (512 + 64 + 512) * 2 + 128 * 8));
  EXPECT_DOUBLE_EQ(sharded.per_selecting_token_layer,
                   0.75 * (64 * 128 * 2 + 64 * 4 + 2048 * 8 + 4));
  model = {.hidden_size = 4096};
  model.attention = {.heads = 32, .kv_heads = 4, .head_dim = 128};
  EXPECT_DOUBLE_EQ(plan::ShardedVolume(model, 2, 2, 2).per_token_layer,
                   0.5 * (2 * 4 * 128 * 2 / 2.0 + 2 * 32 * 128 * 2 + 32 * 8));
}

}  // namespace
}  // namespace longspan::runtime
