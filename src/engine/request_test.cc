#include "engine/request.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::engine {
namespace {

using ::testing::HasSubstr;

constexpr RequestLimits kLimits = {
    .vocab_size = 100, .context_length = 32, .capacity_tokens = 24, .page_size = 4};

Request PromptOf(size_t tokens, int64_t max_tokens) {
  return {.prompt = std::vector<int32_t>(tokens, 7), .max_tokens = max_tokens};
}

std::string Refused(const Request& request) { return CheckRequest(request, kLimits).message(); }

TEST(RequestTest, OutputEndsWithTheContext) {
  EXPECT_EQ(OutputLimit(PromptOf(10, 5), kLimits), 5);
  EXPECT_EQ(OutputLimit(PromptOf(30, 5), kLimits), 2);
  EXPECT_EQ(OutputLimit(PromptOf(10, std::numeric_limits<int64_t>::max()), kLimits), 22);
  EXPECT_EQ(OutputLimit(PromptOf(10, 0), kLimits), 0);
}

TEST(RequestTest, TheLastOutputTokenNeedsNoCache) {
  EXPECT_EQ(CachedPositions(PromptOf(10, 5), kLimits), 14);
  EXPECT_EQ(CachedPositions(PromptOf(10, 1), kLimits), 10);
  EXPECT_EQ(CachedPositions(PromptOf(10, 0), kLimits), 10);
}

TEST(RequestTest, WhatFitsToTheLastTokenIsTaken) {
  EXPECT_TRUE(CheckRequest(PromptOf(24, 1), kLimits).ok());
  EXPECT_TRUE(CheckRequest(PromptOf(20, 5), kLimits).ok());
  EXPECT_THAT(Refused(PromptOf(20, 6)), HasSubstr("at most 24 tokens fit"));
  EXPECT_THAT(Refused(PromptOf(25, 0)), HasSubstr("at most 24 tokens fit"));
  EXPECT_THAT(Refused(PromptOf(33, 0)), HasSubstr("the context 32"));
  // A full context leaves no room for an output.
  EXPECT_THAT(Refused(PromptOf(32, 1)), HasSubstr("the context 32"));
}

TEST(RequestTest, BadOnesGetASentence) {
  EXPECT_THAT(Refused({}), HasSubstr("empty"));
  EXPECT_THAT(Refused(PromptOf(4, -1)), HasSubstr("negative"));
  EXPECT_THAT(Refused({.prompt = {1, 100}}), HasSubstr("token id 100"));
  EXPECT_THAT(Refused({.prompt = {-1}}), HasSubstr("token id -1"));
  Request request = PromptOf(4, 1);
  request.score_positions = {4};
  EXPECT_THAT(Refused(request), HasSubstr("position 4"));
  request.score_positions = {1, 1};
  EXPECT_THAT(Refused(request), HasSubstr("ascending"));
  request.score_positions = {};
  request.sampling.temperature = -1;
  EXPECT_THAT(Refused(request), HasSubstr("temperature"));
}

}  // namespace
}  // namespace longspan::engine
