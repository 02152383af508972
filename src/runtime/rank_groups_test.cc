// What the ranks of a stage do when one of their links breaks.
#include "runtime/rank_groups.h"

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "checkpoint/dummy.h"
#include "comm/fault/fault.h"
#include "comm/in_process/in_process.h"
#include "model/architecture.h"
#include "model/stage_model.h"
#include "runtime/kv_cache.h"

namespace longspan::runtime {
namespace {

using tensor::DType;
using tensor::View;

// Two context-parallel ranks, each of two tensor-parallel ones.
constexpr spec::Mesh kMesh = {.cp = 2, .tp = 2};
constexpr int kRanks = 4;

// The line between the ranks 1 and 3 breaks at its first message.
std::vector<RankLinks> Connect() {
  std::vector<RankLinks> links(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (size_t peer = rank + 1; peer < kRanks; ++peer) {
      auto [here, there] = comm::CreateInProcessLinkPair();
      if (rank == 1 && peer == 3)
        here = comm::CreateFaultInjectingLink(std::move(here), {.kill_at = 0});
      links[rank].stage_peers.push_back(std::move(here));
      links[peer].stage_peers.push_back(std::move(there));
    }
  }
  return links;
}

// Lets threads tell that they have ended.
class Ends {
 public:
  void Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool WaitForAll(std::chrono::seconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return count_ == kRanks; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// Ranks 0 and 2 wait in sums with ranks that have failed in a gather, of which they have no part;
// these are still there, since nobody has ended them yet.
TEST(RankGroupsTest, AFailureEndsTheWaitOfThoseWithoutALinkToIt) {
  const std::vector<RankLinks> links = Connect();
  std::array<std::unique_ptr<RankGroups>, kRanks> groups;
  for (int rank = 0; rank < kRanks; ++rank)
    groups[static_cast<size_t>(rank)] = std::make_unique<RankGroups>(
        RankConfig{.mesh = kMesh, .rank = rank}, links[static_cast<size_t>(rank)]);
  Ends ends;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::array<float, 8> values{};
      const View x(values.data(), DType::kF32, {8});
      const std::array<int64_t, 2> counts = {4, 4};
      if (rank == 1 || rank == 3) {
        groups[rank]->StartGather(x, counts);
        groups[rank]->FinishGathers();
        EXPECT_FALSE(groups[rank]->ok()) << rank;
      } else {
        groups[rank]->SumOverTensorRanks(x);
      }
      ends.Add();
    });
  }
  EXPECT_TRUE(ends.WaitForAll(std::chrono::seconds(30))) << "a rank waits for ever";
  for (const RankLinks& of_rank : links)
    for (const auto& link : of_rank.stage_peers) link->Close();
  for (std::thread& thread : threads) thread.join();
  for (const auto& group : groups) {
    EXPECT_FALSE(group->ok());
    EXPECT_FALSE(group->status().message().empty());
  }
}

// Fails at the first sum.
class BrokenRanks : public model::LoneRank {
 public:
  bool ok() const override { return sums_ == 0; }
  void SumOverTensorRanks(const View& /*x*/) override { ++sums_; }

  int sums() const { return sums_; }

 private:
  int sums_ = 0;
};

TEST(RankGroupsTest, NothingIsComputedAfterAFailure) {
  const auto config = checkpoint::HubConfig::Parse(
      R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 8,
          "intermediate_size": 8, "num_hidden_layers": 3, "num_attention_heads": 1,
          "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 1000.0})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const spec::ModelSpec model = model::ReadModelSpec(*config).value();
  const ops::Backend& backend = backend::reference::ReferenceBackend();
  const auto queue = backend.CreateQueue({}).value();
  const auto weights = checkpoint::MakeDummySource(1);
  model::WeightLoader loader(*weights, backend, *queue, {});
  const std::vector<plan::LayerRange> layers = {{0, 3}};
  const auto stage = model::StageModel::Load(model, {.ranges = layers}, loader).value();
  const auto cache =
      KvCache::Allocate(backend, model, layers, {.pages = 1, .page_size = 4}).value();

  tensor::Workspace workspace(backend.Allocate(1 << 20).value());
  tensor::ExecutionContext context{*queue, workspace};
  BrokenRanks ranks;
  std::array<float, 8> memory{};
  std::array<int32_t, 1> zeros{};
  std::array<int64_t, 1> slots{};
  const auto ints = [&](std::initializer_list<int64_t> sizes) {
    return View(zeros.data(), DType::kI32, sizes);
  };
  const model::Step step = {context,
                            backend.ops(),
                            ranks,
                            {.positions = ints({0}),
                             .slots = View(slots.data(), DType::kI64, {0}),
                             .slice_row_begin = ints({1}),
                             .page_table = ints({0, 1})},
                            View(memory.data(), DType::kF32, {0, 4}),
                            View(memory.data(), DType::kF32, {0, 4}),
                            {},
                            {}};
  int layers_told = 0;
  stage->Forward(step, 0, cache.Layers(0), View(memory.data(), DType::kF32, {0, 8}),
                 [&](int, const tensor::ConstView&) { ++layers_told; });
  EXPECT_EQ(ranks.sums(), 1);
  EXPECT_EQ(layers_told, 0);
}

}  // namespace
}  // namespace longspan::runtime
