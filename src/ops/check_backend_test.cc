#include "ops/check_backend.h"

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::ops {
namespace {

using tensor::ConstView;
using tensor::DType;
using ::testing::HasSubstr;

TEST(CheckBackendTest, OtherTypesAreRefusedByName) {
  EXPECT_TRUE(CheckFloatTypes("cpu", DType::kBf16, DType::kF32).ok());
  EXPECT_THAT(CheckFloatTypes("cpu", DType::kF16, DType::kF32).message(),
              HasSubstr("the cpu backend computes in f32 or bf16, not f16"));
  EXPECT_THAT(CheckFloatTypes("cuda", DType::kF32, DType::kF16).message(),
              HasSubstr("the cuda backend has a KV cache of f32 or bf16, not f16"));
}

TEST(CheckBackendTest, PartsAreStackedWhereTheirColumnsAgree) {
  std::vector<float> values(24);
  const std::array good = {ConstView(values.data(), DType::kF32, {2, 6}),
                           ConstView(values.data(), DType::kF16, {1, 6})};
  EXPECT_EQ(StackedRows("cpu", {.parts = good, .compute = DType::kF32}).value(), 3);
  const std::array uneven = {good[0], ConstView(values.data(), DType::kF32, {2, 5})};
  EXPECT_THAT(StackedRows("cpu", {.parts = uneven, .compute = DType::kF32}).status().message(),
              HasSubstr("matrices of 6 and 5 columns cannot be stacked"));
  const std::array integers = {ConstView(values.data(), DType::kI32, {2, 6})};
  EXPECT_THAT(StackedRows("cuda", {.parts = integers, .compute = DType::kF32}).status().message(),
              HasSubstr("the cuda backend packs weights of f32, bf16 or f16, not of i32"));
  EXPECT_FALSE(StackedRows("cpu", {.parts = {}, .compute = DType::kF32}).ok());
}

}  // namespace
}  // namespace longspan::ops
