// The DeepSeek models that have golden files, and how near each must come to them
// (golden_logits_test.cc has the rules).
#pragma once

#include <cstdio>
#include <ostream>
#include <span>

#include <gtest/gtest.h>

#include "tests/engine/golden.h"

namespace longspan::testing {

// Where two positions have scores so close that another order of sums may select the other one,
// float32 results may differ by more than roundings.
struct DeepseekCase {
  const char* model;
  double tolerance;
};
inline constexpr DeepseekCase kDeepseekCases[] = {
    {"rand-deepseek-v32", 1e-4},
    {"tiny-deepseek-v3", 1e-4},
    {"tiny-deepseek-v32", 1e-3},
    {"tiny-deepseek-v32-fp8", 1e-3},
};

// Those of trained models, which are fixtures. The random one chooses other experts and positions
// everywhere when activations are rounded to bfloat16, so that it is held to float32 only.
inline constexpr std::span kTrainedDeepseekCases = std::span(kDeepseekCases).subspan(1);

inline void PrintTo(const DeepseekCase& c, std::ostream* out) { *out << c.model; }

// The cases of up to `longest` tokens, in float32.
inline void ExpectGoldenF32(const DeepseekCase& c, const Layout& layout, size_t longest) {
  const auto engine = Start(ModelFolder(c.model), layout);
  for (const GoldenCase& golden : ReadGolden(c.model)) {
    if (golden.ids.size() > longest) continue;
    const Deviation deviation = Compare(Score(*engine, golden.ids, golden.positions), golden);
    std::printf("%s: largest %.1e, hidden %.1e\n", golden.name.c_str(), deviation.largest,
                deviation.hidden);
    EXPECT_LE(deviation.largest, c.tolerance) << golden.name;
    EXPECT_LE(deviation.hidden, c.tolerance) << golden.name;
  }
}

// The cases of up to `longest` tokens, in bfloat16.
inline void ExpectGoldenBf16(const DeepseekCase& c, const Layout& layout, size_t longest) {
  const auto engine = Start(ModelFolder(c.model), layout);
  double sum = 0;
  int64_t rows = 0;
  for (const GoldenCase& golden : ReadGolden(c.model)) {
    if (golden.ids.size() > longest) continue;
    const Deviation deviation = Compare(Score(*engine, golden.ids, golden.positions), golden);
    std::printf("%s: mean %.2f%% of std, largest %.1e, flips %d\n", golden.name.c_str(),
                100 * deviation.mean, deviation.largest, deviation.flips);
    EXPECT_LE(deviation.mean, 0.05) << golden.name;
    EXPECT_EQ(deviation.flips, 0) << golden.name;
    sum += deviation.mean * static_cast<double>(deviation.rows);
    rows += deviation.rows;
  }
  EXPECT_LE(sum / static_cast<double>(rows), 0.02);
}

}  // namespace longspan::testing
