#include "checkpoint/dummy.h"

#include <cmath>
#include <set>
#include <vector>

#include "checkpoint/test_files.h"
#include "tensor/dtype.h"

namespace longspan::checkpoint {
namespace {

using tensor::Bf16;

std::vector<float> Values(WeightSource& source, std::string_view name,
                          const std::vector<int64_t>& shape) {
  const auto view = source.Read(name, shape);
  EXPECT_TRUE(view.ok()) << view.status().message();
  std::vector<float> values;
  for (int64_t i = 0; i < view->elements(); ++i)
    values.push_back(tensor::ToFloat(static_cast<const Bf16*>(view->raw())[i]));
  return values;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double kurtosis = 0;  // 3 for a normal distribution
};
Moments MomentsOf(const std::vector<float>& values) {
  Moments moments;
  const auto count = static_cast<double>(values.size());
  for (const float value : values) moments.mean += value / count;
  double fourth = 0;
  for (const float value : values) {
    const double square = (value - moments.mean) * (value - moments.mean);
    moments.deviation += square / count;
    fourth += square * square / count;
  }
  moments.kurtosis = fourth / (moments.deviation * moments.deviation);
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

constexpr std::string_view kMatrix = "model.layers.0.mlp.up_proj.weight";

TEST(DummyTest, TheSameSeedAndNameGiveTheSameValues) {
  const auto one = MakeDummySource(1);
  const auto again = MakeDummySource(1);
  const auto other_seed = MakeDummySource(2);
  const auto values = Values(*one, kMatrix, {33, 7});
  // Whatever was read or released before.
  Values(*again, "model.norm.weight", {64});
  EXPECT_EQ(Values(*again, kMatrix, {33, 7}), values);
  again->Release(kMatrix);
  EXPECT_EQ(Values(*again, kMatrix, {33, 7}), values);
  EXPECT_NE(Values(*other_seed, kMatrix, {33, 7}), values);
  EXPECT_NE(Values(*one, "model.layers.1.mlp.up_proj.weight", {33, 7}), values);
}

TEST(DummyTest, MatricesAreNormalAndScaledByTheirColumns) {
  const auto source = MakeDummySource(3);
  EXPECT_TRUE(source->Has(kMatrix));
  const Moments moments = MomentsOf(Values(*source, kMatrix, {512, 400}));
  EXPECT_NEAR(moments.mean, 0, 0.0005);
  EXPECT_NEAR(moments.deviation, 0.05, 0.0005);
  EXPECT_NEAR(moments.kurtosis, 3, 0.1);
  EXPECT_EQ(source->bytes_read(), 512 * 400 * 2);
}

TEST(DummyTest, RowsAndColumnsDiffer) {
  const auto source = MakeDummySource(4);
  const auto values = Values(*source, kMatrix, {64, 64});
  std::set<std::vector<float>> rows;
  std::set<float> first_row(values.begin(), values.begin() + 64);
  for (size_t row = 0; row < 64; ++row)
    rows.emplace(values.begin() + static_cast<std::ptrdiff_t>(row * 64),
                 values.begin() + static_cast<std::ptrdiff_t>(row * 64 + 64));
  EXPECT_EQ(rows.size(), 64u);
  EXPECT_GT(first_row.size(), 50u);
}

TEST(DummyTest, NormsAreNearOneAndBiasesNearZero) {
  const auto source = MakeDummySource(5);
  for (const std::string_view name : {"model.norm.weight", "model.layers.0.input_layernorm.weight",
                                      "model.layers.0.self_attn.q_norm.weight"}) {
    const Moments moments = MomentsOf(Values(*source, name, {4096}));
    EXPECT_NEAR(moments.mean, 1, 0.01) << name;
    EXPECT_LT(moments.deviation, 0.1) << name;
    EXPECT_GT(moments.deviation, 0.01) << name;
  }
  const Moments bias = MomentsOf(Values(*source, "model.layers.0.self_attn.q_proj.bias", {4096}));
  EXPECT_NEAR(bias.mean, 0, 0.01);
  EXPECT_LT(bias.deviation, 0.05);
}

TEST(DummyTest, EmbeddingsKeepASize) {
  const auto source = MakeDummySource(6);
  const Moments moments = MomentsOf(Values(*source, "model.embed_tokens.weight", {16, 7168}));
  EXPECT_NEAR(moments.deviation, 0.02, 0.001);
}

TEST(DummyTest, EveryLengthIsFilled) {
  const auto source = MakeDummySource(7);
  const auto longest = Values(*source, "w.bias", {9});
  for (int64_t length = 0; length < 9; ++length) {
    const auto values = Values(*source, "w.bias", {length});
    ASSERT_EQ(values.size(), static_cast<size_t>(length));
    EXPECT_TRUE(std::equal(values.begin(), values.end(), longest.begin()));
  }
}

TEST(DummyTest, ShapesBeyondMemoryAreRefused) {
  const auto source = MakeDummySource(8);
  const std::vector<int64_t> overflow = {int64_t{1} << 40, int64_t{1} << 40};
  ExpectSentence(source->Read("w", overflow).status(), base::StatusCode::kInvalidArgument,
                 "tensor 'w' of shape [1099511627776, 1099511627776] is too large");
  const std::vector<int64_t> huge = {int64_t{1} << 55};
  EXPECT_EQ(source->Read("w", huge).status().code(), base::StatusCode::kResourceExhausted);
  EXPECT_EQ(source->bytes_read(), 0);
}

TEST(DummyTest, AWindowIsAPartOfTheWhole) {
  const auto source = MakeDummySource(1);
  const int64_t shape[] = {6, 7};
  const std::vector<float> whole = Values(*source, kMatrix, {6, 7});
  const auto view = source->ReadWindow(kMatrix, shape, {2, 3, 3, 4});
  ASSERT_TRUE(view.ok());
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t column = 0; column < 4; ++column)
      EXPECT_EQ(tensor::ToFloat(view->row<Bf16>(row)[column]),
                whole[static_cast<size_t>((2 + row) * 7 + 3 + column)]);
}

}  // namespace
}  // namespace longspan::checkpoint
