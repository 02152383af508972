// Prompts that arrive and are aborted at random moments, in a cache too small for all of them: what
// comes out is what one rank gives alone.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"
#include "tests/support/effort.h"

namespace longspan::testing {
namespace {

constexpr int kVocab = 131;
constexpr const char* kConfig =
    R"({"architectures": ["Qwen3ForCausalLM"], "vocab_size": 131, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 700, "rms_norm_eps": 1e-6, "rope_theta": 10000.0})";

engine::Request RandomRequest(std::mt19937& random, uint64_t seed) {
  // Three documents, so that prefixes are found, and evicted.
  auto prompt = RandomIds(random() % 3 == 0 ? 0 : 40, kVocab, 1000 + random() % 3);
  const auto question = RandomIds(1 + random() % 90, kVocab, seed);
  prompt.insert(prompt.end(), question.begin(), question.end());
  engine::Request request = {.prompt = std::move(prompt),
                             .max_tokens = 1 + static_cast<int64_t>(random() % 60),
                             .ignore_end_tokens = true};
  if (random() % 2 == 0)
    request.sampling = {.temperature = 1.0, .top_p = 0.95, .seed = seed, .presence_penalty = 0.5};
  return request;
}

// Submits and aborts while others' tokens are delivered.
class RandomArrivals : public engine::OutputSink {
 public:
  RandomArrivals(engine::Engine& engine, uint64_t seed) : engine_(engine), random_(seed) {}

  void Run(const std::vector<engine::Request>& requests) {
    outputs_.resize(requests.size());
    ended_.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) waiting_.push_back({i, &requests[i]});
    while (!waiting_.empty()) {
      Arrive();
      ASSERT_TRUE(engine_.RunUntilIdle().ok());
    }
  }

  void OnPrefill(plan::SequenceId, int64_t, int64_t) override { Happen(); }
  bool OnToken(plan::SequenceId id, const engine::TokenOutput& token) override {
    outputs_[index_.at(id.value)].push_back(token.token);
    Happen();
    return true;
  }
  void OnFinish(plan::SequenceId id, engine::FinishReason reason,
                const engine::FinishInfo&) override {
    const size_t index = index_.at(id.value);
    EXPECT_FALSE(ended_[index]) << "once";
    ended_[index] = true;
    aborted_ += reason == engine::FinishReason::kAbort ? 1 : 0;
    reasons_[index] = reason;
  }

  void ExpectOutputs(const std::vector<std::vector<int32_t>>& alone) const {
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(ended_[i]);
      auto want = alone[i];
      if (reasons_.at(i) == engine::FinishReason::kAbort) {
        ASSERT_LE(outputs_[i].size(), want.size());
        want.resize(outputs_[i].size());
      }
      EXPECT_EQ(outputs_[i], want) << i;
    }
  }
  int aborted() const { return aborted_; }

 private:
  struct Waiting {
    size_t index = 0;
    const engine::Request* request = nullptr;
  };

  void Arrive() {
    const auto [index, request] = waiting_.front();
    waiting_.pop_front();
    const auto id = engine_.Submit(*request, this);
    ASSERT_TRUE(id.ok());
    index_[id->value] = index;
  }

  void Happen() {
    if (!waiting_.empty() && random_() % 8 == 0) Arrive();
    if (random_() % 100 != 0) return;
    const auto victim = std::next(index_.begin(), random_() % index_.size());
    engine_.Abort({victim->first});
  }

  engine::Engine& engine_;
  std::mt19937 random_;
  std::deque<Waiting> waiting_;
  std::map<int64_t, size_t> index_;  // by sequence
  std::vector<std::vector<int32_t>> outputs_;
  std::vector<bool> ended_;
  std::map<size_t, engine::FinishReason> reasons_;
  int aborted_ = 0;
};

TEST(RandomArrivalsTest, GiveWhatOneRankGivesAlone) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "longspan_random_arrivals";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  const auto alone = Start(folder, {.load_format = "dummy", .reuse_prefixes = false});
  int aborted = 0;
  int64_t preemptions = 0;
  for (int stages = 1; stages <= 4; ++stages) {
    for (uint64_t mix = 0; mix < 3; ++mix) {
      if (kSanitized && mix != stages % 3u) continue;
      SCOPED_TRACE(fmt::format("{} stages, mix {}", stages, mix));
      std::mt19937 random(10 * stages + mix);
      std::vector<engine::Request> requests;
      std::vector<std::vector<int32_t>> want;
      for (uint64_t i = 0; i < 20; ++i) {
        requests.push_back(RandomRequest(random, 100 * mix + i));
        want.push_back(Generate(*alone, requests.back()).ids);
      }
      const auto engine = Start(folder, {.stages = stages,
                                         .virtual_stages = mix == 2 ? 2 : 1,
                                         .chunk_tokens = 5 + static_cast<int64_t>(random() % 40),
                                         .page_size = 8,
                                         .load_format = "dummy",
                                         .max_total_tokens = 240});
      RandomArrivals arrivals(*engine, random());
      arrivals.Run(requests);
      arrivals.ExpectOutputs(want);
      EXPECT_EQ(engine->pages().in_use(), 0);
      aborted += arrivals.aborted();
      preemptions += engine->preemptions();
    }
  }
  EXPECT_GT(aborted, Effort(5, 1));
  EXPECT_GT(preemptions, Effort(5, 1));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace longspan::testing
