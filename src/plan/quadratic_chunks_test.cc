#include "plan/quadratic_chunks.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

using ::testing::ElementsAre;

constexpr QuadraticTime kTime = {.a = 2e-6, .b = 2e-2};
constexpr int64_t kContext = 1 << 20;

QuadraticChunks Published(double smoothing) {
  return {kTime, {.first_tokens = 12288, .smoothing = smoothing, .context_length = kContext}};
}

TEST(QuadraticChunksTest, GivesThePublishedLengths) {
  const QuadraticChunks chunks = Published(0.75);
  struct Vector {
    int64_t length;
    double equal_time, smoothed;
    int64_t tokens;
  };
  for (const Vector& v :
       {Vector{12288, 6644.19, 8055.15, 8000}, Vector{65536, 1915.38, 4508.53, 4480},
        Vector{131072, 1002.67, 3824.00, 3776}, Vector{1'000'000, 136.25, 3174.19, 3136}}) {
    EXPECT_NEAR(chunks.EqualTimeTokens(v.length), v.equal_time, 0.01);
    EXPECT_NEAR(chunks.SmoothedTokens(v.length), v.smoothed, 0.01);
    EXPECT_EQ(chunks.NextTokens(v.length), v.tokens);
  }
}

TEST(QuadraticChunksTest, EndsWithTheContext) {
  EXPECT_EQ(Published(0.75).NextTokens(1'048'000), 448);
  EXPECT_EQ(Published(0.75).NextTokens(1'048'400), 64);
}

TEST(QuadraticChunksTest, CutsALongPromptAsPublished) {
  const QuadraticChunks chunks = Published(0.65);
  std::vector<int64_t> lengths = {12288};
  for (int64_t at = 12288; at < 131072; at += lengths.back())
    lengths.push_back(std::min(chunks.NextTokens(at), 131072 - at));
  EXPECT_THAT(lengths,
              ElementsAre(12288, 8576, 7424, 6784, 6400, 6144, 5952, 5760, 5632, 5504, 5440, 5376,
                          5312, 5248, 5184, 5120, 5120, 5056, 4992, 4992, 4992, 3776));
}

TEST(QuadraticChunksTest, LongChunksAreCapped) {
  const QuadraticChunks chunks(kTime, {.first_tokens = 65536, .smoothing = 0});
  EXPECT_EQ(chunks.NextTokens(65536), 16384);
}

TEST(QuadraticChunksTest, ProbesFallFromFiveQuartersOfTheFirstChunk) {
  const auto lengths = QuadraticChunks::ProbeLengths(12288);
  ASSERT_EQ(lengths.size(), 128U);
  EXPECT_EQ(lengths.front(), 15360);
  EXPECT_EQ(lengths[1], 15360 - 120);
  EXPECT_EQ(lengths.back(), 15360 - 127 * 120);
}

std::vector<LengthSeconds> Measure(double a, double b, double c) {
  std::vector<LengthSeconds> measurements;
  for (const int64_t length : QuadraticChunks::ProbeLengths(4096)) {
    const auto l = static_cast<double>(length);
    measurements.push_back({length, a * l * l + b * l + c});
  }
  return measurements;
}

TEST(QuadraticChunksTest, FitsAQuadraticAndDropsTheFirstMeasurement) {
  auto measurements = Measure(3e-9, 2e-5, 1e-3);
  measurements.front().seconds = 7;
  const auto time = QuadraticChunks::Fit(measurements);
  ASSERT_TRUE(time.ok()) << time.status().message();
  EXPECT_NEAR(time->a, 3e-9, 1e-13);
  EXPECT_NEAR(time->b, 2e-5, 1e-9);
  EXPECT_NEAR(time->c, 1e-3, 1e-7);
}

TEST(QuadraticChunksTest, RefusesWhatIsNoConvexCurve) {
  EXPECT_FALSE(QuadraticChunks::Fit(Measure(-1e-9, 2e-5, 0)).ok());
  EXPECT_FALSE(QuadraticChunks::Fit(std::vector<LengthSeconds>(8, {64, 1})).ok()) << "too few";
  EXPECT_FALSE(QuadraticChunks::Fit(std::vector<LengthSeconds>(20, {64, NAN})).ok());
  // A line that falls is a line that is flat.
  const auto time = QuadraticChunks::Fit(Measure(3e-9, -1e-6, 1e-2));
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(time->b, 0);
}

}  // namespace
}  // namespace longspan::plan
