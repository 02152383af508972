// How far apart two layouts' results are.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace longspan::testing {

// Relative to the largest value wanted.
inline double LargestDifference(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    largest = std::max<double>(largest, std::abs(want[i]));
    difference = std::max<double>(difference, std::abs(got[i] - want[i]));
  }
  return difference / largest;
}

// Of all rows of logits and hidden states, each relative to its own largest value.
inline double LargestDifference(const Scores& got, const Scores& want) {
  EXPECT_EQ(got.positions, want.positions);
  double largest = 0;
  for (size_t i = 0; i < want.logits.size(); ++i)
    largest = std::max(largest, LargestDifference(got.logits[i], want.logits[i]));
  EXPECT_EQ(got.hidden.size(), want.hidden.size());
  for (size_t depth = 0; depth < want.hidden.size(); ++depth)
    largest = std::max(largest, LargestDifference(got.hidden[depth], want.hidden[depth]));
  return largest;
}

}  // namespace longspan::testing
