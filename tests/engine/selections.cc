#include "tests/engine/selections.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/ops/tolerance.h"

namespace longspan::testing {
namespace {

using op_suite::Gamma;
using op_suite::kUnitBf16;
using tensor::DType;

// A near-tie in float32.
constexpr double kTie = 1e-5;

// How many standard deviations of its roundings a score in bfloat16 may be off.
constexpr double kDeviations = 5;

double Length(const float* values, int64_t count) {
  return std::sqrt(std::inner_product(values, values + count, values, 0.0));
}

std::vector<int32_t> Without(const std::vector<int32_t>& all, const std::vector<int32_t>& some) {
  std::vector<int32_t> rest;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(), std::back_inserter(rest));
  return rest;
}

// The lowest of the `count` best scores.
double Threshold(std::vector<double> scores, size_t count) {
  const auto last = scores.begin() + static_cast<int64_t>(count) - 1;
  std::nth_element(scores.begin(), last, scores.end(), std::greater<>());
  return *last;
}

// The sum of the sizes of all terms in a position's score.
double Magnitude(const IndexerRun& run, int64_t position) {
  double sum = 0;
  for (int64_t head = 0; head < run.heads; ++head) {
    double dot = 0;
    for (int64_t i = 0; i < run.dim; ++i)
      dot += std::abs(double{run.query(head)[i]} * run.key(position)[i]);
    sum += std::abs(double{run.head_weights[head]}) * run.scale * dot;
  }
  return sum;
}

// Sums over dim and over heads, two products; of the position and of the one at the threshold.
void ExpectBestOfItsOwn(const IndexerRun& run, const std::string& what) {
  const auto scores = run.Scores();
  const double threshold = Threshold(scores, run.selected.size());
  double magnitude = 0;
  for (int64_t position = 0; position < run.positions(); ++position)
    magnitude = std::max(magnitude, Magnitude(run, position));
  const double error = 2 * Gamma(run.dim + run.heads + 3) * magnitude;
  for (const int32_t position : run.selected)
    EXPECT_GE(scores[position], threshold - error) << what << " position " << position;
}

// How far a position's score in bfloat16 may be from that in float32, as a standard deviation.
//
// A rounding to bfloat16 has a relative error of up to 2^-8, of 0.42 x 2^-8 in the root of the mean
// square where fractions are spread evenly over their logarithms. Errors of n roundings on the way
// to a vector add up in squares to a relative length of sqrt(n) times that, where a product with a
// matrix enlarges errors no more than values. A query comes from the residual stream by 5 roundings
// (norm, latent, its norm, product, rotation), a key by 4 (norm, product, norm, rotation), and
// every layer before adds about 16 to the stream (norms, products, rotations, scores' weights,
// sums). The error of a product of two such vectors of dim elements is that of their lengths'
// product over sqrt(dim), for errors point nowhere in particular; those of the heads add up in
// squares.
double Bf16Deviation(const IndexerRun& run, size_t layer, int64_t position) {
  constexpr double kRms = 0.42 * kUnitBf16;
  const double roundings = 5 + 4 + 2 * 16 * static_cast<double>(layer);
  const double key = Length(run.key(position), run.dim);
  double squares = 0;
  for (int64_t head = 0; head < run.heads; ++head) {
    const double length = Length(run.query(head), run.dim) * key * run.scale;
    squares += std::pow(double{run.head_weights[head]} * length, 2) / static_cast<double>(run.dim);
  }
  return kRms * std::sqrt(roundings * squares);
}

}  // namespace

std::vector<IndexerRun> LastRuns(const std::string& model, const std::string& backend, DType dtype,
                                 const GoldenCase& golden) {
  return RunTapped({.model = ModelFolder(model), .backend = backend, .dtype = dtype}, golden.ids,
                   {static_cast<int64_t>(golden.ids.size()) - 1})
      .last;
}

void ExpectGoldenSelections(const GoldenCase& golden, const std::vector<IndexerRun>& runs) {
  ASSERT_EQ(runs.size(), golden.selected.size()) << golden.name;
  for (size_t layer = 0; layer < runs.size(); ++layer) {
    const IndexerRun& run = runs[layer];
    const std::string what = golden.name + " layer " + std::to_string(layer);
    const auto& want = golden.selected[layer];
    ASSERT_EQ(run.selected.size(), want.size()) << what;
    if (!run.asked()) {
      EXPECT_EQ(run.selected, want) << what;
      continue;
    }
    ExpectBestOfItsOwn(run, what);
    const auto scores = run.Scores();
    const double threshold = Threshold(scores, want.size());
    auto others = Without(run.selected, want);
    const auto missing = Without(want, run.selected);
    others.insert(others.end(), missing.begin(), missing.end());
    for (const int32_t position : others)
      EXPECT_NEAR(scores[position], threshold, kTie * std::abs(threshold))
          << what << " position " << position;
  }
}

void ExpectBf16Selections(const GoldenCase& golden, const std::vector<IndexerRun>& wide,
                          const std::vector<IndexerRun>& narrow) {
  ASSERT_EQ(narrow.size(), wide.size()) << golden.name;
  for (size_t layer = 0; layer < wide.size(); ++layer) {
    const std::string what = golden.name + " layer " + std::to_string(layer);
    const auto& want = wide[layer].selected;
    ASSERT_EQ(narrow[layer].selected.size(), want.size()) << what;
    if (!narrow[layer].asked() || !wide[layer].asked()) {
      EXPECT_EQ(narrow[layer].selected, want) << what;
      continue;
    }
    ExpectBestOfItsOwn(narrow[layer], what);
    const auto others = Without(narrow[layer].selected, want);
    EXPECT_LE(others.size(), want.size() * 3 / 100) << what;
    const auto scores = wide[layer].Scores();
    const double threshold = Threshold(scores, want.size());
    double farthest = 0;
    for (const int32_t position : others) {
      // The position's own error, and one like it at the threshold.
      const double deviation = std::sqrt(2.0) * Bf16Deviation(wide[layer], layer, position);
      farthest = std::max(farthest, (threshold - scores[position]) / deviation);
    }
    EXPECT_LE(farthest, kDeviations) << what;
    if (!others.empty())
      std::printf("%s: %zu of %zu are others, the farthest %.1f deviations below the threshold\n",
                  what.c_str(), others.size(), want.size(), farthest);
  }
}

}  // namespace longspan::testing
