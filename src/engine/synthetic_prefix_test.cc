#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/request.h"
#include "engine/scheduler.h"

namespace longspan::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RequestLimits kLimits = {
    .vocab_size = 100, .context_length = 64, .capacity_tokens = 64, .page_size = 4};

Request PromptOf(int64_t tokens, int64_t prefix) {
  return {.prompt = std::vector<int32_t>(static_cast<size_t>(tokens), 7),
          .max_tokens = 1,
          .synthetic_prefix = prefix};
}

TEST(SyntheticPrefixTest, FirstChunkBeginsBehindItAndAnnouncesItsPages) {
  Scheduler scheduler({.chunk_tokens = 8}, 16, kLimits.page_size);
  auto sequence = std::make_unique<Sequence>();
  sequence->id = {1};
  sequence->request = PromptOf(13, 9);
  ASSERT_TRUE(scheduler.Enqueue(std::move(sequence), kLimits).ok());
  const auto plan = scheduler.Next();
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->slices.size(), 1U);
  EXPECT_EQ(plan->slices[0].begin, 9);
  EXPECT_EQ(plan->slices[0].end(), 13);
  EXPECT_THAT(plan->slices[0].new_pages, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(plan->started.size(), 1U);
}

TEST(SyntheticPrefixTest, LeavesAtLeastOneTokenToCompute) {
  EXPECT_TRUE(CheckRequest(PromptOf(8, 7), kLimits).ok());
  EXPECT_THAT(CheckRequest(PromptOf(8, 8), kLimits).message(), HasSubstr("leaves none of 8"));
  EXPECT_FALSE(CheckRequest(PromptOf(8, -1), kLimits).ok());
}

TEST(SyntheticPrefixTest, HasNoScores) {
  Request request = PromptOf(8, 4);
  request.score_positions = {3};
  EXPECT_THAT(CheckRequest(request, kLimits).message(), HasSubstr("positions 4 to 7"));
  request.score_positions = {4, 7};
  EXPECT_TRUE(CheckRequest(request, kLimits).ok());
}

}  // namespace
}  // namespace longspan::engine
