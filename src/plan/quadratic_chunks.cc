#include "plan/quadratic_chunks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace longspan::plan {
namespace {

constexpr int64_t kProbes = 128;
constexpr size_t kFewest = 8;
// Chunks are multiples of this many tokens at least.
constexpr int64_t kAlignment = 64;
// Of the context that chunks leave free.
constexpr int64_t kReserve = 100;
constexpr int64_t kFloorShare = 4;

// Gaussian elimination with pivots; rows of [matrix | right side].
std::array<double, 3> Solve(std::array<std::array<double, 4>, 3> rows) {
  for (size_t column = 0; column < 3; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < 3; ++row)
      if (std::abs(rows[row][column]) > std::abs(rows[pivot][column])) pivot = row;
    std::swap(rows[column], rows[pivot]);
    for (size_t row = 0; row < 3; ++row) {
      if (row == column) continue;
      const double factor = rows[row][column] / rows[column][column];
      for (size_t k = column; k < 4; ++k) rows[row][k] -= factor * rows[column][k];
    }
  }
  return {rows[0][3] / rows[0][0], rows[1][3] / rows[1][1], rows[2][3] / rows[2][2]};
}

}  // namespace

std::vector<int64_t> QuadraticChunks::ProbeLengths(int64_t first_tokens) {
  std::vector<int64_t> lengths;
  const int64_t longest = first_tokens * 5 / 4;
  for (int64_t i = 0; i < kProbes; ++i) {
    const int64_t length = longest - i * (longest / kProbes);
    if (length <= 0) break;
    lengths.push_back(length);
  }
  return lengths;
}

base::Result<QuadraticTime> QuadraticChunks::Fit(std::span<const LengthSeconds> measurements) {
  if (measurements.size() < kFewest + 1)
    return base::InvalidArgument("{} measurements are too few for a quadratic fit: it needs {}",
                                 measurements.size(), kFewest + 1);
  const auto used = measurements.subspan(1);
  double scale = 0;  // lengths of about 1 keep the equations well conditioned
  for (const LengthSeconds& m : used) scale = std::max(scale, static_cast<double>(m.length));
  std::array<std::array<double, 4>, 3> rows{};
  for (const LengthSeconds& m : used) {
    const double x = static_cast<double>(m.length) / scale;
    const std::array<double, 4> powers = {x * x, x, 1, m.seconds};
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 4; ++j) rows[i][j] += powers[i] * powers[j];
  }
  const auto [a, b, c] = Solve(rows);
  if (!(a > 0) || !std::isfinite(a) || !std::isfinite(b))
    return base::InvalidArgument(
        "the times of chunks do not grow as a convex curve (a = {:.3g}): use --chunk-policy "
        "planned",
        a);
  return QuadraticTime{
      .a = a / (scale * scale), .b = std::max(0.0, b / scale), .c = std::isfinite(c) ? c : 0};
}

double QuadraticChunks::EqualTimeTokens(int64_t length) const {
  const auto first = static_cast<double>(options_.first_tokens);
  const double target = time_.a * first * first + time_.b * first;
  const double p = 2 * time_.a * static_cast<double>(length) + time_.b;
  const double tokens = (-p + std::sqrt(p * p + 4 * time_.a * target)) / (2 * time_.a);
  return tokens > 0 ? tokens : first;
}

double QuadraticChunks::SmoothedTokens(int64_t length) const {
  const auto first = static_cast<double>(options_.first_tokens);
  return first + options_.smoothing * (EqualTimeTokens(length) - first);
}

int64_t QuadraticChunks::NextTokens(int64_t length) const {
  const int64_t alignment = std::max(options_.page_size, kAlignment);
  int64_t tokens =
      std::max(static_cast<int64_t>(SmoothedTokens(length)), options_.first_tokens / kFloorShare);
  tokens = std::max(tokens / alignment * alignment, alignment);
  tokens = std::min({tokens, options_.context_length - length - kReserve, options_.max_tokens});
  tokens = tokens > 0 ? tokens / alignment * alignment : 0;
  return tokens < alignment ? options_.first_tokens : tokens;
}

}  // namespace longspan::plan
