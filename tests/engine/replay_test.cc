// The engine loses its stages and goes on: the same tokens as without the loss, none twice.
#include <filesystem>
#include <iterator>
#include <set>

#include <gmock/gmock.h>

#include "tests/engine/faulty_engine.h"

namespace longspan::testing {
namespace {

using comm::FaultPlan;
using ::testing::HasSubstr;

int64_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

int64_t Threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

class ReplayTest : public ::testing::Test {
 protected:
  // Runs the requests while the lines of the first epochs misbehave; the epochs that it took.
  base::Result<int> Run(FaultyOptions options, const std::string& what) {
    const HangGuard guard(what);
    int epochs = 0;
    options.replay = true;
    options.faults = [&epochs, faults = options.faults](plan::Epoch epoch) {
      ++epochs;
      EXPECT_EQ(static_cast<int>(epoch.value) + 1, epochs);
      return faults(epoch);
    };
    auto engine = StartFaulty(options);
    if (!engine.ok()) return engine.status();
    CollectingSink sink;
    std::vector<int64_t> sequences;
    for (engine::Request& request : FaultyRequests())
      sequences.push_back((*engine)->Submit(std::move(request), &sink).value().value);
    const base::Status status = (*engine)->RunUntilIdle();
    EXPECT_EQ((*engine)->pages().in_use(), 0) << what;
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(sink.reasons.count(sequences[i]), 1u) << what;
      if (!status.ok()) continue;
      EXPECT_EQ(sink.ids[sequences[i]], expected_[i]) << what;
    }
    if (!status.ok()) return status;
    return epochs;
  }

  // The place misbehaves so in the first epoch.
  base::Result<int> RunOnce(const Place& place, const FaultPlan& plan, const std::string& what) {
    return Run({.faults =
                    [&](plan::Epoch epoch) {
                      return epoch.value == 0 ? Faults{{place, plan}} : Faults{};
                    }},
               what);
  }

  // The rank ends in place of that message to the first of its stage's others.
  void ExpectReplaced(FaultyOptions options, int rank, uint64_t message) {
    const auto what = fmt::format("rank {} is lost at message {}", rank, message);
    options.faults = [&](plan::Epoch epoch) {
      return epoch.value == 0 ? Faults{{{Line::kStagePeer, rank}, {.kill_at = message}}} : Faults{};
    };
    const auto epochs = Run(options, what);
    ASSERT_TRUE(epochs.ok()) << what << ": " << epochs.status().message();
    EXPECT_EQ(*epochs, 2) << what;
  }

  // The last reports of the first stages may be missing when all is done.
  static void ExpectOneLoss(const Place& place, int epochs, const std::string& what) {
    if (place.line == Line::kResults && place.rank + 1 < kFaultyStages) {
      EXPECT_LE(epochs, 2) << what;
    } else {
      EXPECT_EQ(epochs, 2) << what;
    }
  }

  std::vector<std::vector<int32_t>> expected_ = ExpectedOutputs();
};

TEST_F(ReplayTest, AnyLineMayEndAtAnyMessage) {
  const int64_t descriptors = OpenDescriptors();
  const int64_t threads = Threads();
  for (const Place& place : AllPlaces()) {
    // The first two configure and allocate, or report that: a loss during bring-up is an error.
    for (const uint64_t message : {2, 5, 11}) {
      const auto what = fmt::format("{} end at message {}", place.ToString(), message);
      const auto epochs = RunOnce(place, {.kill_at = message}, what);
      ASSERT_TRUE(epochs.ok()) << what << ": " << epochs.status().message();
      ExpectOneLoss(place, *epochs, what);
    }
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(Threads(), threads);
}

// A prompt that is computed again is planned again, from what the steps before the loss have cost.
TEST_F(ReplayTest, PlannedChunksSurviveALoss) {
  for (const Place& place : AllPlaces()) {
    const auto what = fmt::format("planned chunks: {} end", place.ToString());
    const auto epochs =
        Run({.faults =
                 [&](plan::Epoch epoch) {
                   return epoch.value == 0 ? Faults{{place, {.kill_at = 5}}} : Faults{};
                 },
             .chunks = engine::ChunkPolicy::Kind::kPlanned},
            what);
    ASSERT_TRUE(epochs.ok()) << what << ": " << epochs.status().message();
    ExpectOneLoss(place, *epochs, what);
  }
}

TEST_F(ReplayTest, TruncatedAndRepeatedMessagesAreMended) {
  for (const Place& place : AllPlaces()) {
    for (const uint64_t message : {2, 8}) {
      const auto what = fmt::format("message {} of {}", message, place.ToString());
      auto epochs = RunOnce(place, {.truncate = {message}}, what + " truncated");
      ASSERT_TRUE(epochs.ok()) << what << ": " << epochs.status().message();
      ExpectOneLoss(place, *epochs, what);
      epochs = RunOnce(place, {.duplicate = {message}}, what + " twice");
      ASSERT_TRUE(epochs.ok()) << what << ": " << epochs.status().message();
    }
  }
}

// Only the watchdog can tell.
TEST_F(ReplayTest, LostMessagesAreNoticedAndMended) {
  for (const Place& place : AllPlaces()) {
    const auto what = fmt::format("a message of {} lost", place.ToString());
    const auto epochs =
        Run({.faults =
                 [&](plan::Epoch epoch) {
                   // The last ones of the run, in case that a later one tells of it.
                   std::set<uint64_t> late;
                   for (uint64_t message = 8; message < 100; ++message) late.insert(message);
                   return epoch.value == 0 ? Faults{{place, {.drop = late}}} : Faults{};
                 },
             .beat_every_ms = 20,
             .peer_timeout_ms = 200,
             .watchdog_timeout_ms = 200},
            what);
    ASSERT_TRUE(epochs.ok()) << what << ": " << epochs.status().message();
    ExpectOneLoss(place, *epochs, what);
  }
}

// A group that is lost when all is done is replaced when there is more to do.
TEST_F(ReplayTest, AnIdleEngineWaitsForWork) {
  int epochs = 0;
  auto engine = StartFaulty(
      {.faults =
           [&](plan::Epoch epoch) {
             ++epochs;
             // The first stage's report of the only plan.
             return epoch.value == 0 ? Faults{{{Line::kResults, 0}, {.kill_at = 2}}} : Faults{};
           },
       .replay = true});
  ASSERT_TRUE(engine.ok());
  for (int round = 0; round < 2; ++round) {
    CollectingSink sink;
    auto id = (*engine)->Submit({.prompt = {1, 2, 3}, .max_tokens = 1}, &sink);
    ASSERT_TRUE(id.ok());
    const auto status = (*engine)->RunUntilIdle();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(sink.reasons.size(), 1u);
    EXPECT_EQ(sink.ids[id->value].size(), 1u);
  }
  EXPECT_LE(epochs, 2);
}

TEST_F(ReplayTest, EveryEpochMayEndAsLongAsThereIsProgress) {
  // Each gets a few steps further than the one before.
  const auto epochs = Run({.faults =
                               [](plan::Epoch epoch) {
                                 const uint64_t steps = 4 + epoch.value;
                                 return Faults{{{Line::kResults, 2}, {.kill_at = 2 + steps}}};
                               }},
                          "ever later");
  ASSERT_TRUE(epochs.ok()) << epochs.status().message();
  EXPECT_GT(*epochs, 5);
}

TEST_F(ReplayTest, AnEndlessLossEndsWithASentence) {
  const auto epochs = Run({.faults =
                               [](plan::Epoch) {
                                 return Faults{{{Line::kResults, 2}, {.kill_at = 4}}};
                               }},
                          "always");
  EXPECT_EQ(epochs.status().code(), base::StatusCode::kUnavailable);
  EXPECT_THAT(epochs.status().message(),
              HasSubstr("the stages were lost again after 3 restarts without progress: stage "));
}

// Scores are told once, and the rest of them after the loss.
TEST_F(ReplayTest, ScoresAreNotRepeated) {
  class Scores : public engine::OutputSink {
   public:
    void OnPrefill(plan::SequenceId, int64_t done, int64_t) override {
      EXPECT_GT(done, prefilled);
      prefilled = done;
    }
    void OnScore(plan::SequenceId, engine::ScoreOutput score) override {
      positions.push_back(score.position);
      logprobs.push_back(score.next_logprob);
    }
    void OnHidden(plan::SequenceId, int32_t depth, std::vector<float>) override {
      depths.push_back(depth);
    }
    int64_t prefilled = 0;
    std::vector<int64_t> positions;
    std::vector<float> logprobs;
    std::vector<int32_t> depths;
  };
  const auto run = [](std::function<Faults(plan::Epoch)> faults) {
    auto engine = StartFaulty({.faults = std::move(faults), .replay = true});
    std::vector<int64_t> all;
    for (int64_t position = 0; position < 60; ++position) all.push_back(position);
    Scores scores;
    auto id = (*engine)->Submit({.prompt = RandomIds(60, 320, 5),
                                 .max_tokens = 0,
                                 .score_positions = all,
                                 .return_hidden = true},
                                &scores);
    EXPECT_TRUE(id.ok());
    const auto status = (*engine)->RunUntilIdle();
    EXPECT_TRUE(status.ok()) << status.message();
    return scores;
  };
  const Scores want = run([](plan::Epoch) { return Faults{}; });
  ASSERT_EQ(want.positions.size(), 60u);
  for (const uint64_t message : {2, 3, 4, 5}) {
    const Scores got = run([&](plan::Epoch epoch) {
      return epoch.value == 0 ? Faults{{{Line::kResults, 2}, {.kill_at = message}}} : Faults{};
    });
    EXPECT_EQ(got.positions, want.positions);
    EXPECT_EQ(got.logprobs, want.logprobs);
    // Of several stages, in the order of their reports.
    EXPECT_THAT(got.depths, ::testing::UnorderedElementsAreArray(want.depths));
  }
}

// Random draws and penalties go on as if nothing had happened.
TEST_F(ReplayTest, SampledTokensAreTheSame) {
  const auto run = [](std::function<Faults(plan::Epoch)> faults) {
    auto engine = StartFaulty({.faults = std::move(faults), .replay = true});
    CollectingSink sink;
    for (uint64_t i = 0; i < 4; ++i) {
      engine::Request request = {.prompt = RandomIds(10 + 9 * static_cast<int64_t>(i), 320, i),
                                 .max_tokens = 24,
                                 .ignore_end_tokens = true};
      request.sampling = {.temperature = 0.9, .seed = i};
      if (i % 2 == 1) request.sampling.frequency_penalty = 0.8;
      EXPECT_TRUE((*engine)->Submit(std::move(request), &sink).ok());
    }
    const auto status = (*engine)->RunUntilIdle();
    EXPECT_TRUE(status.ok()) << status.message();
    return sink.ids;
  };
  const auto want = run([](plan::Epoch) { return Faults{}; });
  for (const uint64_t message : {6, 12, 20})
    EXPECT_EQ(
        run([&](plan::Epoch epoch) {
          return epoch.value < 2 ? Faults{{{Line::kPlans, 1}, {.kill_at = message}}} : Faults{};
        }),
        want);
}

// Three stages of two ranks: whichever line between the ranks of a stage breaks, all are replaced.
TEST_F(ReplayTest, ARankLostInsideASumIsReplaced) {
  for (int rank = 0; rank < 2 * kFaultyStages; ++rank) {
    for (const uint64_t message : {0, 1, 5, 12}) {
      for (const FaultPlan& plan :
           {FaultPlan{.kill_at = message}, FaultPlan{.truncate = {message}}}) {
        const auto what = fmt::format("message {} of rank {} to its neighbour {}", message, rank,
                                      plan.kill_at ? "is its last" : "is truncated");
        const auto epochs = Run(
            {.faults =
                 [&](plan::Epoch epoch) {
                   return epoch.value == 0 ? Faults{{{Line::kStagePeer, rank}, plan}} : Faults{};
                 },
             .shape = {.ranks = kFaultyStages},
             .tensor_ranks = 2},
            what);
        ASSERT_TRUE(epochs.ok()) << what << ": " << epochs.status().message();
        EXPECT_EQ(*epochs, 2) << what;
      }
    }
  }
}

// The same of ranks that divide tokens, and the cache too.
TEST_F(ReplayTest, ARankLostInsideAGatherIsReplaced) {
  for (const int rank : {0, 3}) {
    FaultyOptions options = {.faults = {}, .shape = {.ranks = kFaultyStages}, .context_ranks = 2};
    ExpectReplaced(options, rank, 4);
    options.kv_placement = plan::KvPlacement::kSharded;
    ExpectReplaced(options, rank, 11);
  }
}

// Ranks that divide tokens and experts, and select in a cache that they divide: whatever they are
// at, all of them are replaced.
TEST_F(ReplayTest, ARankLostBetweenTokensAndExpertsIsReplaced) {
  constexpr const char* kModel = "rand-deepseek-v32";
  expected_ = ExpectedOutputs(kModel);
  FaultyOptions options = {
      .model = kModel, .shape = {.ranks = 2, .loops = 2}, .context_ranks = 2, .expert_ranks = 2};
  for (const plan::KvPlacement placement :
       {plan::KvPlacement::kReplicated, plan::KvPlacement::kSharded}) {
    options.kv_placement = placement;
    for (const uint64_t message : {1, 9, 30, 53})
      ExpectReplaced(options, message % 2 == 0 ? 2 : 3, message);
  }
}

}  // namespace
}  // namespace longspan::testing
