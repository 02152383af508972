// What the products of this backend promise beyond the suite of tests/ops: their bits, at sizes
// that take its large tiles. Needs a GPU.
#include "backend/cuda/product.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "tests/support/random_values.h"
#include "tests/support/test_device.h"

namespace longspan::backend::cuda {
namespace {

using support::RandomValues;
using support::TestDevice;
using tensor::DType;
using tensor::View;

// Eleven by twelve large tiles, the last ones in part: one for each multiprocessor of an H200.
constexpr int64_t kRows = 1400;
constexpr int64_t kColumns = 72;
constexpr int64_t kFeatures = 2824;
constexpr float kMark = 77;

class CudaProductTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = CudaBackend();
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    device_ = std::make_unique<TestDevice>(**found, 1, ops::WorkspaceShape{.rows = kRows});
    x_ = device_->Floats(RandomValues(kRows * kColumns, 1, 1, DType::kBf16), DType::kBf16,
                         {kRows, kColumns});
    for (int i = 0; i < 2; ++i)
      weights_.push_back(device_->Weight(RandomValues(kFeatures * kColumns, 2 + i, 1, DType::kBf16),
                                         DType::kBf16, kFeatures, kColumns));
  }

  View Marked() {
    return device_->Floats(std::vector<float>(kRows * kFeatures, kMark), DType::kBf16,
                           {kRows, kFeatures});
  }
  void Linear(int64_t begin, int64_t end, const ops::PackedWeight* weight, const View& out) {
    device_->Run(device_->ops().linear, {.x = x_.Rows(begin, end - begin),
                                         .weight = weight,
                                         .bias = {},
                                         .out = out.Rows(begin, end - begin)});
  }

  std::unique_ptr<TestDevice> device_;
  View x_;
  std::vector<const ops::PackedWeight*> weights_;
};

TEST_F(CudaProductTest, LargeTilesGiveTheBitsOfSmallOnes) {
  const View whole = Marked();
  Linear(0, kRows, weights_[0], whole);
  const View parts = Marked();
  for (int64_t row = 0; row < kRows; row += 37)
    Linear(row, std::min(kRows, row + 37), weights_[0], parts);
  EXPECT_EQ(device_->ReadFloats(parts), device_->ReadFloats(whole));
}

TEST_F(CudaProductTest, GroupsGiveTheBitsOfOneAfterTheOther) {
  constexpr int64_t kBorder = 643;
  const View grouped = Marked();
  device_->Run(device_->ops().grouped_linear,
               {.x = x_,
                .weights = weights_,
                .expert_begin = device_->Ints(
                    std::vector<int32_t>{0, kBorder, static_cast<int32_t>(kRows)}, {3}),
                .source_rows = {},
                .out = grouped});
  const View alone = Marked();
  Linear(0, kBorder, weights_[0], alone);
  Linear(kBorder, kRows, weights_[1], alone);
  EXPECT_EQ(device_->ReadFloats(alone), device_->ReadFloats(grouped));
}

// cuBLASLt's sums may be split, but their parts are added in order.
TEST_F(CudaProductTest, RepeatsItsBitsWithoutDeterministicToo) {
  device_->context().deterministic = false;
  for (const int64_t rows : {int64_t{1}, int64_t{16}, kRows}) {
    const View first = Marked();
    Linear(0, rows, weights_[0], first);
    for (int repetition = 0; repetition < 3; ++repetition) {
      const View again = Marked();
      Linear(0, rows, weights_[0], again);
      EXPECT_EQ(device_->ReadFloats(again), device_->ReadFloats(first)) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace longspan::backend::cuda
