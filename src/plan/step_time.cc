#include "plan/step_time.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace longspan::plan {
namespace {

constexpr size_t kMeasurements = 64;
constexpr int kFits = 3;  // with weights of the fit before
// Relative errors up to this are noise; a larger one counts as this one does.
constexpr double kCommonError = 0.1;
// How much the last fit counts where the measurements do not tell b from a.
constexpr double kInertia = 1e-4;

// minimum of sum w (b u + a v - 1)^2 over b, a >= 0.
struct NormalEquations {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;

  void Add(double weight, double rows, double pairs, double target) {
    uu += weight * rows * rows;
    uv += weight * rows * pairs;
    vv += weight * pairs * pairs;
    u += weight * rows * target;
    v += weight * pairs * target;
  }

  void Solve(double& b, double& a) const {
    const double determinant = uu * vv - uv * uv;
    const double free_b = (u * vv - v * uv) / determinant;
    const double free_a = (v * uu - u * uv) / determinant;
    b = free_a < 0 ? u / uu : std::max(0.0, free_b);
    a = free_b < 0 ? v / vv : std::max(0.0, free_a);
  }
};

}  // namespace

void StepWork::Add(int64_t begin, int64_t end) {
  const auto length = static_cast<double>(begin);
  const auto count = static_cast<double>(end - begin);
  rows += count;
  pairs += 2 * length * count + count * count;
}

void StepTimeModel::Add(const StepWork& work, double seconds) {
  LONGSPAN_CHECK(work.rows > 0, "a step without rows");
  if (!(seconds > 0)) return;
  if (measurements_.empty()) b_ = seconds / work.rows;
  measurements_.push_back({work, seconds});
  if (measurements_.size() > kMeasurements) measurements_.pop_front();
  Fit();
}

void StepTimeModel::Fit() {
  const auto count = static_cast<double>(measurements_.size());
  const double old_b = b_;
  const double old_a = a_;
  for (int fit = 0; fit < kFits; ++fit) {
    NormalEquations sums;
    double row_share = 0;
    double pair_share = 0;
    for (const auto& [work, seconds] : measurements_) {
      const double error = std::abs(Seconds(work) / seconds - 1);
      // The first pass has no fit to compare with: after a change of the load all errors are large.
      const double weight = fit == 0 ? 1 : kCommonError / std::max(error, kCommonError);
      sums.Add(weight, work.rows / seconds, work.pairs / seconds, 1);
      row_share += work.rows / seconds / count;
      pair_share += work.pairs / seconds / count;
    }
    sums.Add(kInertia * count, row_share, 0, old_b * row_share);
    sums.Add(kInertia * count, 0, pair_share, old_a * pair_share);
    sums.Solve(b_, a_);
  }
}

int64_t StepTimeModel::LongestChunk(int64_t begin, int64_t most, double seconds) const {
  if (!(seconds > 0)) return 0;
  // a x^2 + p x = seconds, in the form that holds for a = 0 as well.
  const double p = b_ + 2 * a_ * static_cast<double>(begin);
  const double root = p + std::sqrt(p * p + 4 * a_ * seconds);
  const double rows = root > 0 ? 2 * seconds / root : static_cast<double>(most);
  return rows >= static_cast<double>(most) ? most : static_cast<int64_t>(rows);
}

}  // namespace longspan::plan
