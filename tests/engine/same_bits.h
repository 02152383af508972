// The same bits from two layouts.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace longspan::testing {

// Some forty positions of a prompt, the last one among them.
inline std::vector<int64_t> SomePositions(int64_t length) {
  std::vector<int64_t> positions;
  for (int64_t position = 0; position < length; position += std::max<int64_t>(1, length / 37))
    positions.push_back(position);
  if (positions.back() != length - 1) positions.push_back(length - 1);
  return positions;
}

inline void ExpectSameBits(const Scores& got, const Scores& want, const std::string& what) {
  ASSERT_EQ(got.positions, want.positions) << what;
  for (size_t i = 0; i < want.logits.size(); ++i)
    ASSERT_EQ(got.logits[i], want.logits[i]) << what << " position " << want.positions[i];
  ASSERT_EQ(got.hidden, want.hidden) << what;
}

}  // namespace longspan::testing
