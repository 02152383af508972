#include "server/prefill_clock.h"

#include <algorithm>

namespace longspan::server {

void PrefillClock::Add(int64_t done, double seconds) {
  if (reports_++ == 0) {
    first_tokens_ = static_cast<double>(done);
    first_seconds_ = seconds;
    return;
  }
  tokens_ = static_cast<double>(done) - first_tokens_;
  const double n = tokens_ / 1000;
  const double t = seconds - first_seconds_;
  tn_ += t * n;
  tn2_ += t * n * n;
  n2_ += n * n;
  n3_ += n * n * n;
  n4_ += n * n * n * n;
}

double PrefillClock::Fitted(double tokens) const {
  const double determinant = n2_ * n4_ - n3_ * n3_;
  double a = tn_ / n2_;
  double b = 0;
  // With one report, or many at one place, only a line can be told.
  if (determinant > 1e-9 * n2_ * n4_) {
    a = (tn_ * n4_ - tn2_ * n3_) / determinant;
    b = (tn2_ * n2_ - tn_ * n3_) / determinant;
    if (b < 0) a = tn_ / n2_, b = 0;
    if (a < 0) a = 0, b = tn2_ / n4_;
  }
  const double n = tokens / 1000;
  return a * n + b * n * n;
}

std::optional<double> PrefillClock::SecondsBetween(int64_t begin, int64_t end) const {
  if (reports_ < 2 || n2_ <= 0) return std::nullopt;
  return Fitted(static_cast<double>(end) - first_tokens_) -
         Fitted(static_cast<double>(begin) - first_tokens_);
}

std::optional<double> PrefillClock::SecondsLeft(int64_t total) const {
  const auto done = static_cast<int64_t>(first_tokens_ + tokens_);
  const auto left = SecondsBetween(done, total);
  return left ? std::optional(std::max(0.0, *left)) : left;
}

}  // namespace longspan::server
