#include "plan/chunk_cap.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

// Costs where cutting costs next to nothing, or nothing: many caps are as good as the best one.
TEST(ChunkCapTest, TheSearchIsBoundedWhereTheOptimumIsFlat) {
  int64_t most = 0;
  for (const ChunkCost& cost :
       {ChunkCost{.per_step = 4e-3, .per_prefix_token = 1e-9, .per_token = 5e-6, .per_pair = 4e-11},
        ChunkCost{.per_step = 1e-6, .per_prefix_token = 1e-12, .per_token = 5e-6},
        ChunkCost{.per_step = 1e-5, .per_prefix_token = 4e-6, .per_token = 5e-6, .per_pair = 1e-10},
        ChunkCost{.per_token = 5e-6, .per_pair = 4e-11}}) {
    for (const int64_t length : {8192, 131'072}) {
      const ChunkCapper capper(cost, {.end = length});
      for (const double weight : {0.01, 1.0, 15.0}) {
        const ChunkCapper::Choice choice = capper.BestCap(weight, 1e9, 1e-10);
        // One more cap may be looked at than fits.
        EXPECT_LE(choice.chunks, 150'000 + length / 64);
        most = std::max(most, choice.chunks);
        const auto objective = [&](double cap) {
          const CappedChunks chunks = capper.Cut(cap);
          return chunks.sum + weight * chunks.longest;
        };
        for (double cap = capper.least_cap(); cap < capper.most_cap(); cap *= 1.01)
          EXPECT_GE(objective(cap), objective(choice.cap) * (1 - 1e-6));
      }
    }
  }
  RecordProperty("most_chunks", static_cast<int>(most));
}

}  // namespace
}  // namespace longspan::plan
