#include "backend/emulated/emulated_backend.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "plan/token_split.h"

namespace longspan::backend::emulated {
namespace {

TEST(EmulatedBackendTest, RanksThatDivideASliceTakeItForTheSame) {
  constexpr int64_t kBegin = 10000;
  for (const plan::TokenSplit split : {plan::TokenSplit::kInterleave, plan::TokenSplit::kZigzag}) {
    for (const int ranks : {1, 2, 4, 8}) {
      const plan::SliceRows slice = {.begin = kBegin, .rows = 512};
      const auto rows = plan::SplitRows({&slice, 1}, split, ranks);
      for (const auto& own : rows) {
        const auto whole = SliceOfAllRanks(kBegin + own.front(), kBegin + own.back(),
                                           static_cast<int64_t>(own.size()), ranks);
        EXPECT_EQ(whole.end - whole.begin, slice.rows);
        EXPECT_LT(std::abs(whole.begin - kBegin), ranks);
        if (split == plan::TokenSplit::kZigzag) {
          EXPECT_EQ(whole.begin, kBegin);
        }
      }
    }
  }
}

TEST(EmulatedBackendTest, ASliceBeginsAtNoPositionBelowTheFirst) {
  const auto whole = SliceOfAllRanks(0, 0, 1, 4);
  EXPECT_EQ(whole.begin, 0);
  EXPECT_EQ(whole.end, 4);
}

}  // namespace
}  // namespace longspan::backend::emulated
