#include "spec/sampling.h"

#include <limits>

#include <gtest/gtest.h>

namespace longspan::spec {
namespace {

TEST(SamplingTest, DefaultsAreGreedyAndValid) {
  EXPECT_TRUE(CheckSampling({}).ok());
  EXPECT_FALSE(SamplingSpec{}.has_penalties());
}

TEST(SamplingTest, RefusesValuesOutsideTheirRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(CheckSampling({.temperature = -1}).ok());
  EXPECT_FALSE(CheckSampling({.temperature = nan}).ok());
  EXPECT_FALSE(CheckSampling({.top_k = -1}).ok());
  EXPECT_FALSE(CheckSampling({.top_p = 0}).ok());
  EXPECT_FALSE(CheckSampling({.top_p = 1.1}).ok());
  EXPECT_FALSE(CheckSampling({.min_p = 1}).ok());
  EXPECT_FALSE(CheckSampling({.repetition_penalty = 0}).ok());
  EXPECT_FALSE(CheckSampling({.presence_penalty = nan}).ok());
  EXPECT_FALSE(CheckSampling({.top_logprobs = -1}).ok());
}

}  // namespace
}  // namespace longspan::spec
