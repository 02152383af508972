#include "base/status.h"

#include <memory>

#include <gtest/gtest.h>

#include "base/result.h"

namespace longspan::base {
namespace {

Result<std::unique_ptr<int>> Half(int n) {
  if (n % 2 != 0) return InvalidArgument("{} is odd: give an even number", n);
  return std::make_unique<int>(n / 2);
}

Result<int> Quarter(int n) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto half, Half(n));
  LONGSPAN_ASSIGN_OR_RETURN(const auto quarter, Half(*half));
  return *quarter;
}

TEST(StatusTest, ResultCarriesMoveOnlyValues) { EXPECT_EQ(*Quarter(8), 2); }

TEST(StatusTest, TheFirstErrorIsReturned) {
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd: give an even number");
  EXPECT_EQ(Quarter(6).status().code(), StatusCode::kInvalidArgument);
}

TEST(StatusTest, ContextGoesBeforeTheMessage) {
  EXPECT_EQ(NotFound("no such file").WithContext("config.json").message(),
            "config.json: no such file");
  EXPECT_TRUE(OkStatus().WithContext("config.json").ok());
}

TEST(StatusDeathTest, AskingForAMissingValueAborts) { EXPECT_DEATH(Half(3).value(), "3 is odd"); }

}  // namespace
}  // namespace longspan::base
