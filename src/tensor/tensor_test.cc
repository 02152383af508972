// Element types, views, buffers and the workspace.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/view.h"
#include "tensor/workspace.h"

namespace longspan::tensor {
namespace {

TEST(DTypeTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(ToFloat(ToBf16(1.0f)), 1.0f);
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f).bits, ToBf16(1.0f).bits);       // a tie goes to even
  EXPECT_EQ(ToFloat(ToBf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);  // up to even
  EXPECT_EQ(ToFloat(ToBf16(1.0f + 0x1.1p-8f)), 1.0f + 0x1p-7f);    // above the tie
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(ToFloat(ToBf16(std::numeric_limits<float>::max()))));
}

TEST(DTypeTest, HalfToFloatIsExact) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xc000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x03ff), 1023 * 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_TRUE(std::isinf(HalfToFloat(0x7c00)));
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7e00)));
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
}

TEST(ViewTest, SlicesKeepTheirStride) {
  float data[24];
  const View view(data, DType::kF32, {4, 6});
  const View part = view.Rows(1, 2).Columns(2, 4);
  EXPECT_EQ(part.data<float>(), data + 8);
  EXPECT_EQ(part.row<float>(1), data + 14);
  EXPECT_FALSE(part.contiguous());
  EXPECT_TRUE(view.Rows(1, 2).contiguous());
  const View heads = part.SplitColumns(2, 2);
  EXPECT_EQ(heads.rank(), 3);
  EXPECT_EQ(heads.stride(0), 6);
  EXPECT_EQ(heads.stride(1), 2);
}

TEST(ViewTest, OffsetsBeyondTwoToThe31DoNotWrap) {
  // Never read: only the arithmetic matters.
  const View view(nullptr, DType::kBf16, {int64_t{1} << 22, 4096});
  EXPECT_EQ(view.elements(), int64_t{1} << 34);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.Rows((int64_t{1} << 22) - 1, 1).raw()),
            uintptr_t{2} * (((uintptr_t{1} << 22) - 1) * 4096));
}

TEST(ViewDeathTest, TheWrongTypeAborts) {
  float data[2];
  const View view(data, DType::kF32, {2});
  EXPECT_DEATH(view.data<int32_t>(), "holds f32");
}

TEST(BufferTest, HostMemoryIsZeroedAndMovable) {
  auto buffer = AllocateHost(1000).value();
  const Buffer moved = std::move(buffer);
  EXPECT_EQ(moved.AsView(DType::kU8, {1000}).data<uint8_t>()[999], 0);
}

TEST(BufferTest, AnImpossibleSizeIsRefusedWithASentence) {
  const auto result = AllocateHost(int64_t{1} << 60);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), base::StatusCode::kResourceExhausted);
}

TEST(WorkspaceTest, ScopesNestAndGiveBack) {
  Workspace workspace(AllocateHost(1024).value());
  Workspace::Scope outer(workspace);
  const View a = outer.Take(DType::kF32, {10});
  {
    Workspace::Scope inner(workspace);
    EXPECT_EQ(inner.Take(DType::kU8, {1}).raw(), static_cast<std::byte*>(a.raw()) + 64);
  }
  EXPECT_EQ(outer.Take(DType::kU8, {1}).raw(), static_cast<std::byte*>(a.raw()) + 64);
  EXPECT_EQ(workspace.peak_bytes(), 128);
}

TEST(WorkspaceDeathTest, RunningOutAborts) {
  Workspace workspace(AllocateHost(64).value());
  Workspace::Scope scope(workspace);
  EXPECT_DEATH(scope.Take(DType::kU8, {65}), "needed");
}

}  // namespace
}  // namespace longspan::tensor
