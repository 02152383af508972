// Looped stages are lost, in the middle of groups of plans, and go on: the same tokens.
#include <gtest/gtest.h>

#include "tests/engine/faulty_engine.h"

namespace longspan::testing {
namespace {

constexpr const char* kModel = "tiny-qwen3-moe";
constexpr plan::PipelineShape kShape = {.ranks = 2, .loops = 2};

std::vector<Place> PlacesOfTheRing() {
  std::vector<Place> places = {{Line::kTokens, kShape.ranks - 1}};
  for (int stage = 0; stage < kShape.ranks; ++stage)
    for (const Line line : {Line::kPlans, Line::kResults, Line::kResidual})
      places.push_back({line, stage});
  return places;
}

// The prompts take chunks of 16: the first messages are of a prefill, later ones of decodes.
TEST(LoopedReplayTest, AnyLineMayEndAtAnyMessage) {
  const auto expected = ExpectedOutputs(kModel);
  for (const Place& place : PlacesOfTheRing()) {
    for (const uint64_t message : {2, 3, 4, 5, 8, 13}) {
      // There are few messages with tokens, and two with the same of each rank to bring it up.
      if (place.line == Line::kTokens && message > 5) continue;
      const auto what = fmt::format("{} end at message {}", place.ToString(), message);
      SCOPED_TRACE(what);
      const HangGuard guard(what);
      int epochs = 0;
      auto engine = StartFaulty(
          {.faults =
               [&](plan::Epoch) {
                 return ++epochs == 1 ? Faults{{place, {.kill_at = message}}} : Faults{};
               },
           .replay = true,
           .model = kModel,
           .shape = kShape});
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      CollectingSink sink;
      std::vector<int64_t> sequences;
      for (engine::Request& request : FaultyRequests())
        sequences.push_back((*engine)->Submit(std::move(request), &sink).value().value);
      const base::Status status = (*engine)->RunUntilIdle();
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(epochs, 2);
      EXPECT_EQ((*engine)->pages().in_use(), 0);
      for (size_t i = 0; i < sequences.size(); ++i) EXPECT_EQ(sink.ids[sequences[i]], expected[i]);
    }
  }
}

}  // namespace
}  // namespace longspan::testing
