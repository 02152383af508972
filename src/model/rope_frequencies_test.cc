#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

namespace longspan::model {
namespace {

spec::RopeSpec DeepSeekRope() {
  return {.theta = 10000,
          .yarn = spec::YarnRopeScaling{.factor = 40,
                                        .original_context_length = 4096,
                                        .beta_fast = 32,
                                        .beta_slow = 1,
                                        .mscale = 1,
                                        .mscale_all_dim = 1}};
}

// DeepSeek-V3's: the ramp goes from the 10th to the 23rd of 32 pairs.
TEST(RopeFrequenciesTest, YarnKeepsFastDimensionsAndStretchesSlowOnes) {
  const auto frequencies = RopeInverseFrequencies(DeepSeekRope(), 64);
  const auto plain = RopeInverseFrequencies({.theta = 10000}, 64);
  ASSERT_EQ(frequencies.size(), 32U);
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(frequencies[i], plain[i]) << i;
  const auto expect = [&](int i, double value) {
    EXPECT_NEAR(frequencies[i], value, 3e-7 * value) << i;
  };
  expect(10, 0.0562341325);
  expect(11, 0.0390069266);
  expect(16, 0.0055);
  expect(22, 1.77827941e-4);
  expect(23, 3.3338036e-5);
  expect(31, 3.3338036e-6);
}

TEST(RopeFrequenciesTest, YarnsMagnitudes) {
  spec::RopeSpec rope = DeepSeekRope();
  EXPECT_NEAR(LatentScoreScale(rope, 192), 0.1352337789, 1e-10);
  EXPECT_EQ(RopeAmplitude(rope), 1);
  rope.yarn->mscale_all_dim = 0;
  EXPECT_NEAR(RopeAmplitude(rope), 1.3688879454, 1e-7);
  EXPECT_NEAR(LatentScoreScale(rope, 192), 0.0721687836, 1e-10);
  rope.yarn->mscale = 0.707;
  rope.yarn->mscale_all_dim = 1.5;
  EXPECT_NEAR(RopeAmplitude(rope), 1.2608037774 / 1.5533319181, 1e-7);
  rope.yarn->attention_factor = 1.25;
  EXPECT_EQ(RopeAmplitude(rope), 1.25f);
  EXPECT_EQ(RopeAmplitude({.theta = 10000}), 1);
  EXPECT_DOUBLE_EQ(LatentScoreScale({.theta = 10000}, 64), 0.125);
}

}  // namespace
}  // namespace longspan::model
