// An engine of some stages over connections that misbehave by a plan.
#pragma once

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "comm/fault/fault.h"
#include "engine/engine.h"
#include "tests/engine/engine_harness.h"

namespace longspan::testing {

constexpr int kFaultyStages = 3;  // of the three layers of rand-llama
inline const char* const kFaultyModel = "rand-llama";

// Which connection misbehaves, and at which rank's sending end. Unless it is said otherwise a stage
// has one rank.
enum class Line { kPlans, kResults, kResidual, kTokens, kStagePeer };
struct Place {
  Line line;
  int rank;  // whose plans, results, output, or parts of sums for the first of its stage's others

  std::string ToString() const {
    constexpr const char* kNames[] = {"plans to", "results of", "residuals of", "tokens of",
                                      "parts from"};
    return fmt::format("{} rank {}", kNames[static_cast<int>(line)], rank);
  }
};

// Of stages in a row.
std::vector<Place> AllPlaces();

using Faults = std::vector<std::pair<Place, comm::FaultPlan>>;

struct FaultyOptions {
  // What the lines of an epoch do.
  std::function<Faults(plan::Epoch)> faults;
  bool replay = false;
  // As many layers as virtual stages: one each.
  const char* model = kFaultyModel;
  plan::PipelineShape shape = {.ranks = kFaultyStages};
  int tensor_ranks = 1;
  int context_ranks = 1;
  int expert_ranks = 1;
  plan::KvPlacement kv_placement = plan::KvPlacement::kReplicated;
  engine::ChunkPolicy::Kind chunks = engine::ChunkPolicy::Kind::kFixed;
  // By default so seldom that messages can be counted.
  int64_t beat_every_ms = 60000;
  int64_t peer_timeout_ms = 120000;
  int64_t watchdog_timeout_ms = 600000;  // slow under the sanitizers
};

// The stages are threads.
base::Result<std::unique_ptr<engine::Engine>> StartFaulty(const FaultyOptions& options);

// Three requests of different lengths, and what comes out of them without faults.
std::vector<engine::Request> FaultyRequests();
std::vector<std::vector<int32_t>> ExpectedOutputs(const char* model = kFaultyModel);

class CollectingSink : public engine::OutputSink {
 public:
  bool OnToken(plan::SequenceId sequence, const engine::TokenOutput& token) override {
    ids[sequence.value].push_back(token.token);
    return true;
  }
  void OnFinish(plan::SequenceId sequence, engine::FinishReason reason,
                const engine::FinishInfo& /*info*/) override {
    EXPECT_EQ(reasons.count(sequence.value), 0u) << "finished twice";
    reasons[sequence.value] = reason;
  }

  std::map<int64_t, std::vector<int32_t>> ids;
  std::map<int64_t, engine::FinishReason> reasons;
};

// Ends the whole test program where a test hangs: what hangs cannot be joined.
class HangGuard {
 public:
  explicit HangGuard(std::string what)
      : thread_([this, what = std::move(what)] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, std::chrono::seconds(200), [this] { return done_; })) return;
          fmt::print(stderr, "hangs: {}\n", what);
          std::abort();
        }) {}
  ~HangGuard() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace longspan::testing
