#include "plan/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace longspan::plan {
namespace {

constexpr size_t kLatest = 48;
constexpr int kFits = 3;  // with weights of the fit before
// How much an older measurement counts when the next one becomes old.
constexpr double kFading = 0.98;
// By how much a term's share of the time is expected to be off: by such a factor of the larger one
// of what the prior says and what is known by now, and at least by so much of the whole time.
constexpr double kPriorSpread = 1;
constexpr double kLeastSpread = 0.05;
// Errors up to twice the median one are noise, and that is at least and at most taken for this.
constexpr double kLeastNoise = 0.02;
constexpr double kMostNoise = 0.2;
// So many measurements tell nothing of the noise.
constexpr double kFew = 1;
double UsualError(double noise) { return 2 * std::max(noise, kLeastNoise); }
// A change of the machine: so many errors in a row, all of one sign and above this.
constexpr size_t kChanged = 8;
constexpr double kChange = 0.2;
constexpr size_t kErrors = 32;
// What is kept for other runs: from so many steps, half of them predicted within a factor of two.
constexpr int64_t kWorthKeeping = 16;
constexpr double kMostError = 0.7;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Solves the part of products x = targets that `chosen` marks, by Cholesky; false where the part is
// not positive definite.
template <size_t N>
bool SolveChosen(const std::array<std::array<double, N>, N>& products,
                 const std::array<double, N>& targets, const std::array<bool, N>& chosen,
                 std::array<double, N>& x) {
  std::array<size_t, N> index{};
  size_t count = 0;
  for (size_t i = 0; i < N; ++i)
    if (chosen[i]) index[count++] = i;
  std::array<std::array<double, N>, N> root{};
  std::array<double, N> y{};
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = products[index[i]][index[j]];
      for (size_t k = 0; k < j; ++k) sum -= root[i][k] * root[j][k];
      if (i == j && !(sum > 0)) return false;
      root[i][j] = i == j ? std::sqrt(sum) : sum / root[j][j];
    }
    double sum = targets[index[i]];
    for (size_t k = 0; k < i; ++k) sum -= root[i][k] * y[k];
    y[i] = sum / root[i][i];
  }
  x.fill(0);
  for (size_t i = count; i-- > 0;) {
    double sum = y[i];
    for (size_t k = i + 1; k < count; ++k) sum -= root[k][i] * x[index[k]];
    x[index[i]] = sum / root[i][i];
  }
  return true;
}

// The least x' products x / 2 - targets' x over x >= 0, by active sets: negative ones leave, the
// one that would help most comes back. Few terms, so a bound on the rounds is enough.
template <size_t N>
bool SolveNonNegative(const std::array<std::array<double, N>, N>& products,
                      const std::array<double, N>& targets, std::array<bool, N> chosen,
                      std::array<double, N>& x) {
  const std::array<bool, N> known = chosen;
  for (size_t round = 0; round < 2 * N; ++round) {
    if (!SolveChosen(products, targets, chosen, x)) return false;
    const auto least = std::min_element(x.begin(), x.end());
    if (*least < 0) {
      chosen[static_cast<size_t>(least - x.begin())] = false;
      continue;
    }
    size_t best = N;
    double most = 0;
    for (size_t i = 0; i < N; ++i) {
      if (!known[i] || chosen[i]) continue;
      double slope = targets[i];
      for (size_t j = 0; j < N; ++j) slope -= products[i][j] * x[j];
      // In the term's own scale, above rounding.
      slope /= std::sqrt(products[i][i]);
      if (slope > std::max(most, 1e-9)) {
        most = slope;
        best = i;
      }
    }
    if (best == N) return true;
    chosen[best] = true;
  }
  for (double& value : x) value = std::max(0.0, value);
  return true;
}

}  // namespace

void CostFit::Sums::Add(const Measurement& measurement, double weight, double scale) {
  const double factor = weight / (scale * scale);
  for (size_t i = 0; i < kTerms; ++i) {
    targets[i] += factor * measurement.work[i] * measurement.seconds;
    for (size_t j = 0; j < kTerms; ++j)
      products[i][j] += factor * measurement.work[i] * measurement.work[j];
  }
}

void CostFit::Sums::Fade(double factor) {
  for (size_t i = 0; i < kTerms; ++i) {
    targets[i] *= factor;
    for (double& product : products[i]) product *= factor;
  }
}

CostFit::CostFit(const ChunkCost& prior) : cost_(prior) {
  prior_ = {prior.per_step,       prior.per_prefix_token,   prior.per_token,
            prior.per_pair,       prior.per_index_pair,     prior.per_selected_pair,
            prior.per_decode_row, prior.per_decode_position};
  coefficients_ = prior_;
}

CostFit::Terms CostFit::Features(const StepWork& work) const {
  return {1,
          work.prefix_tokens,
          work.tokens,
          work.dense_pairs,
          cost_.top_k == 0 ? 0 : work.pairs,
          work.selected_pairs,
          work.decode_rows,
          work.decode_positions};
}

ChunkCost CostFit::CostOf(const Terms& c, int64_t top_k) {
  return {.per_step = c[0],
          .per_prefix_token = c[1],
          .per_token = c[2],
          .per_pair = c[3],
          .per_index_pair = c[4],
          .per_selected_pair = c[5],
          .per_decode_row = c[6],
          .per_decode_position = c[7],
          .top_k = top_k};
}

double CostFit::Product(const Terms& a, const Terms& b) {
  double sum = 0;
  for (size_t i = 0; i < kTerms; ++i) sum += a[i] * b[i];
  return sum;
}

void CostFit::Add(const StepWork& work, double seconds) {
  constexpr double kYear = 3e7;  // a clock that is off
  if (!(seconds > 0) || seconds > kYear) return;
  const Measurement measurement{Features(work), seconds};
  const double predicted = Product(measurement.work, coefficients_);
  // What the prior says before its level is known is no prediction of the fit.
  if (predicted > 0 && measurements_ > 0) {
    errors_.push_back(std::log(seconds / predicted));
    if (errors_.size() > kErrors) errors_.pop_front();
    ++errors_since_change_;
  }
  ++measurements_;
  latest_.push_back(measurement);
  ForgetWhatWasBefore();
  if (latest_.size() > kLatest) {
    const Measurement& old = latest_.front();
    const double expected = Product(old.work, coefficients_);
    const double error = std::log(old.seconds / expected) / UsualError(Noise(coefficients_));
    older_.Fade(kFading);
    older_.Add(old, 1 / (1 + error * error), std::max(old.seconds, expected));
    latest_.pop_front();
  }
  Fit();
}

void CostFit::ForgetWhatWasBefore() {
  if (errors_since_change_ < kChanged) return;
  const auto begin = errors_.end() - static_cast<int64_t>(kChanged);
  const double sign = errors_.back() > 0 ? 1 : -1;
  const auto low =
      std::count_if(begin, errors_.end(), [&](double e) { return sign * e < kChange; });
  // One of them may be an accident of its own.
  if (low > 1) return;
  errors_since_change_ = 0;
  errors_.clear();
  older_ = {};
  while (latest_.size() > kChanged) latest_.pop_front();
}

double CostFit::Level(const Terms& coefficients) const {
  std::vector<double> ratios;
  for (const Measurement& m : latest_) {
    const double predicted = Product(m.work, coefficients);
    if (predicted > 0) ratios.push_back(m.seconds / predicted);
  }
  return ratios.empty() ? 1 : Median(std::move(ratios));
}

double CostFit::Noise(const Terms& coefficients) const {
  std::vector<double> errors;
  for (const Measurement& m : latest_) {
    const double predicted = Product(m.work, coefficients);
    if (predicted > 0) errors.push_back(std::abs(std::log(m.seconds / predicted)));
  }
  return errors.empty() ? kMostNoise : std::min(Median(std::move(errors)), kMostNoise);
}

void CostFit::Fit() {
  const double prior_level = Level(prior_);
  const double level = Level(coefficients_);
  Terms fitted = coefficients_;
  for (double& coefficient : fitted) coefficient *= level;
  for (int fit = 0; fit < kFits; ++fit) {
    const double noise = Noise(fitted);
    const double usual = UsualError(noise);
    // Few measurements are met exactly, noise and all.
    const double unknown = kFew * kMostNoise / static_cast<double>(latest_.size());
    Sums sums = older_;
    Terms shares{};  // of a term at the measured time, in the mean
    for (const Measurement& m : latest_) {
      const double predicted = Product(m.work, fitted);
      // What took ten times less than it should is to count no more than what took ten times
      // longer.
      const double scale = std::max(m.seconds, predicted);
      const double error = predicted > 0 ? std::log(m.seconds / predicted) / usual : 0;
      sums.Add(m, 1 / (1 + error * error), scale);
      for (size_t i = 0; i < kTerms; ++i)
        shares[i] += m.work[i] / scale / static_cast<double>(latest_.size());
    }
    std::array<bool, kTerms> known{};
    for (size_t i = 0; i < kTerms; ++i) {
      known[i] = sums.products[i][i] > 0;
      const double share = shares[i] * std::max(prior_level * prior_[i], fitted[i]);
      const double spread = std::max(kPriorSpread * share, kLeastSpread);
      // As many measurements say the same as well as the prior does.
      const double weight =
          std::max(std::pow(std::min(noise + unknown, kMostNoise) * shares[i] / spread, 2),
                   1e-8 * sums.products[i][i]);
      sums.products[i][i] += weight;
      sums.targets[i] += weight * prior_level * prior_[i];
    }
    if (!SolveNonNegative(sums.products, sums.targets, known, fitted)) return;
    for (size_t i = 0; i < kTerms; ++i)
      if (!known[i]) fitted[i] = prior_level * prior_[i];
  }
  if (!(Product(latest_.back().work, fitted) > 0)) return;
  coefficients_ = fitted;
  cost_ = CostOf(fitted, cost_.top_k);
}

double CostFit::error() const {
  if (errors_.empty()) return 1;
  std::vector<double> errors;
  for (const double error : errors_) errors.push_back(std::abs(error));
  return Median(std::move(errors));
}

PipelineFit::PipelineFit(PipelineCost prior) : prior_(std::move(prior)), cost_(prior_) {
  LONGSPAN_CHECK(static_cast<int>(prior_.stages.size()) == prior_.shape.stages(),
                 "a cost for every stage");
  for (int rank = 0; rank < prior_.shape.ranks; ++rank) {
    ChunkCost sum = prior_.at(rank, 0);
    for (int loop = 1; loop < prior_.shape.loops; ++loop) sum = Sum(sum, prior_.at(rank, loop));
    fits_.emplace_back(sum);
    prior_ranks_.push_back(sum);
  }
  rank_costs_ = prior_ranks_;
}

void PipelineFit::Add(const StepWork& work, std::span<const double> rank_seconds) {
  LONGSPAN_CHECK(rank_seconds.size() == fits_.size(), "seconds of every rank");
  for (size_t rank = 0; rank < fits_.size(); ++rank) {
    fits_[rank].Add(work, rank_seconds[rank]);
    rank_costs_[rank] = fits_[rank].cost();
    TakeRank(rank);
  }
}

void PipelineFit::TakeRank(size_t rank) {
  // By the time of a chunk in the middle of things: terms that are 0 in the prior have no share.
  constexpr int64_t kBegin = 8192;
  constexpr int64_t kEnd = 8192 + 512;
  const double whole = prior_ranks_[rank].Seconds(kBegin, kEnd);
  const auto loops = static_cast<size_t>(prior_.shape.loops);
  for (size_t loop = 0; loop < loops; ++loop) {
    const size_t stage = loop * fits_.size() + rank;
    const double share = whole > 0 ? prior_.stages[stage].Seconds(kBegin, kEnd) / whole
                                   : 1 / static_cast<double>(loops);
    cost_.stages[stage] = Scaled(rank_costs_[rank], share);
  }
}

double PipelineFit::Seconds(const StepWork& work) const {
  double seconds = 0;
  for (const ChunkCost& cost : rank_costs_) seconds = std::max(seconds, cost.Seconds(work));
  return seconds;
}

double PipelineFit::Seconds(int64_t begin, int64_t end) const {
  StepWork work;
  work.AddChunk(begin, end, top_k());
  return Seconds(work);
}

int64_t PipelineFit::LongestChunk(const StepWork& work, int64_t begin, int64_t most,
                                  double seconds) const {
  const auto fits = [&](int64_t rows) {
    StepWork with_chunk = work;
    with_chunk.AddChunk(begin, begin + rows, top_k());
    return Seconds(with_chunk) <= seconds;
  };
  if (most <= 0 || fits(most)) return std::max<int64_t>(0, most);
  int64_t low = 0;  // fits, or is nothing
  while (most - low > 1) {
    const int64_t middle = low + (most - low) / 2;
    (fits(middle) ? low : most) = middle;
  }
  return low;
}

bool PipelineFit::IsWorthKeeping() const {
  // The first step has none.
  const auto knows = [](const CostFit& fit) { return fit.predictions() >= kWorthKeeping - 1; };
  return measurements() >= kWorthKeeping && std::all_of(fits_.begin(), fits_.end(), knows) &&
         error() <= kMostError;
}

double PipelineFit::error() const {
  double error = 0;
  for (const CostFit& fit : fits_) error = std::max(error, fit.error());
  return error;
}

}  // namespace longspan::plan
