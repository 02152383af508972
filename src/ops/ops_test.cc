// The parts of ops/ that compute: argument checks, missing ops, counter-based random numbers.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "ops/counter_random.h"
#include "ops/dispatch.h"

namespace longspan::ops {
namespace {

using tensor::DType;
using tensor::View;

TEST(OpTableTest, NamesTheMissingOps) {
  OpTable table;
  table.add = [](tensor::ExecutionContext&, const AddArgs&) {};
  EXPECT_EQ(MissingOps(table, {OpKind::kAdd, OpKind::kRouter, OpKind::kTopLogprobs}),
            (std::vector<std::string_view>{"router", "top_logprobs"}));
}

TEST(CheckArgsDeathTest, MismatchedShapesAbort) {
  float data[16] = {};
  const View a(data, DType::kF32, {2, 4});
  const View b(data, DType::kF32, {4, 2});
  CheckArgs(AddArgs{.x = a, .y = a});
  EXPECT_DEATH(CheckArgs(AddArgs{.x = a, .y = b}), "alike");
}

TEST(CounterRandomTest, RepeatsAndIsUniform) {
  EXPECT_EQ(CounterBits(1, 2, 3), CounterBits(1, 2, 3));
  std::set<uint64_t> seen;
  double sum = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    seen.insert(CounterBits(7, i / 100, i % 100));
    const double u = CounterUniform(7, i / 100, i % 100);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_EQ(seen.size(), size_t{kDraws});
  // Five standard deviations of the mean of so many uniform numbers.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / std::sqrt(kDraws));
}

}  // namespace
}  // namespace longspan::ops
