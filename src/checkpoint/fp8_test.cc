#include "checkpoint/fp8.h"

#include <cmath>
#include <map>

#include "checkpoint/checkpoint.h"
#include "checkpoint/dense_view.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"

namespace longspan::checkpoint {
namespace {

using base::StatusCode;
using tensor::ConstView;
using tensor::DType;

TEST(E4M3Test, DecodesEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    const float got = tensor::E4M3ToFloat(static_cast<uint8_t>(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(got)) << code;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(got, code < 128 ? magnitude : -magnitude) << code;
    EXPECT_EQ(std::signbit(got), code >= 128) << code;
  }
  EXPECT_EQ(tensor::E4M3ToFloat(0x7e), 448);
  EXPECT_EQ(tensor::E4M3ToFloat(0x38), 1);
  EXPECT_EQ(tensor::E4M3ToFloat(0x01), 0x1p-9f);
}

class Fp8Test : public testing::Test {
 protected:
  // A folder with a matrix "w" of [rows, columns] ones (0x38) and its scales.
  void WriteModel(int64_t rows, int64_t columns, const std::vector<float>& scales,
                  std::initializer_list<int64_t> scale_shape, std::string_view quantization) {
    const std::vector<uint8_t> codes(rows * columns, 0x38);
    const std::vector<float> norm = {1, 2, 3};
    const NamedTensor tensors[] = {
        {"norm", ConstView(norm.data(), DType::kF32, {3})},
        {"w", ConstView(codes.data(), DType::kF8E4M3, {rows, columns})},
        {"w_scale_inv", ConstView(scales.data(), DType::kF32, scale_shape)}};
    ASSERT_TRUE(WriteSafetensors(folder_.Path("model.safetensors"), tensors).ok());
    folder_.Write("config.json", fmt::format(R"({{"architectures":["X"]{}}})", quantization));
  }

  base::Result<ConstView> Read(WeightSource& source, int64_t rows, int64_t columns) {
    const int64_t shape[] = {rows, columns};
    return source.Read("w", shape);
  }

  static constexpr std::string_view kBlocks =
      R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[2,3]})";
  TestFolder folder_;
};

// Blocks of [2, 3] over [3, 7]: the last row and the last column of blocks are partial.
TEST_F(Fp8Test, EveryBlockHasItsScale) {
  WriteModel(3, 7, {1, 2, 3, 4, 5, 6}, {2, 3}, kBlocks);
  const auto source = OpenCheckpoint(folder_.path()).value();
  const auto view = Read(*source, 3, 7);
  ASSERT_TRUE(view.ok()) << view.status().message();
  ASSERT_EQ(view->dtype(), DType::kF32);
  const std::vector<float> got(view->data<float>(), view->data<float>() + 21);
  EXPECT_THAT(got, testing::ElementsAre(1, 1, 1, 2, 2, 2, 3,  //
                                        1, 1, 1, 2, 2, 2, 3,  //
                                        4, 4, 4, 5, 5, 5, 6));
  source->Release("w");
  EXPECT_TRUE(Read(*source, 3, 7).ok());
  // What is not FP8 passes as it is.
  const int64_t shape[] = {3};
  EXPECT_EQ(source->Read("norm", shape)->data<float>()[2], 3);
}

TEST_F(Fp8Test, WrongScalesAreRefused) {
  WriteModel(3, 7, {1, 2, 3, 4}, {2, 2}, kBlocks);
  const auto source = OpenCheckpoint(folder_.path()).value();
  ExpectSentence(Read(*source, 3, 7).status(), StatusCode::kInvalidArgument, "w_scale_inv");
}

TEST_F(Fp8Test, WithoutAConfigurationFp8IsRefused) {
  WriteModel(2, 3, {1}, {1, 1}, "");
  const auto source = OpenCheckpoint(folder_.path()).value();
  ExpectSentence(Read(*source, 2, 3).status(), StatusCode::kUnimplemented,
                 "tensor 'w' is stored in FP8, but the model's config.json has no "
                 "quantization_config");
}

// A window is what the whole matrix has there, wherever it cuts the blocks.
TEST_F(Fp8Test, AWindowMayCutBlocks) {
  WriteModel(5, 7, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}, kBlocks);
  const auto source = std::move(OpenCheckpoint(folder_.path()).value());
  const int64_t shape[] = {5, 7};
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t column = 0; column < 7; ++column) {
      const MatrixWindow window = {row, 5 - row, column, 7 - column};
      const auto view = source->ReadWindow("w", shape, window);
      ASSERT_TRUE(view.ok()) << view.status().message();
      ASSERT_EQ(view->size(0), window.rows);
      ASSERT_EQ(view->size(1), window.columns);
      for (int64_t i = 0; i < window.rows; ++i)
        for (int64_t j = 0; j < window.columns; ++j)
          EXPECT_EQ(view->row<float>(i)[j],
                    static_cast<float>(1 + (row + i) / 2 * 3 + (column + j) / 3));
    }
  }
}

}  // namespace
}  // namespace longspan::checkpoint
