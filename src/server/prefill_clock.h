// How long a prefill will still take.
#pragma once

#include <cstdint>
#include <optional>

namespace longspan::server {

// The time for n computed tokens is fitted as a n + b n^2 (attention looks back at all of them), by
// least squares over what was reported, both at least 0. A plain value.
class PrefillClock {
 public:
  // `done` of `total` tokens are there after so many seconds; the first call sets the zero point of
  // both, since the time before it may have been spent in a queue.
  void Add(int64_t done, double seconds);
  // How long the tokens from one count to another take. Nothing is known before the second report.
  std::optional<double> SecondsBetween(int64_t begin, int64_t end) const;
  // Nothing is known before the second report.
  std::optional<double> SecondsLeft(int64_t total) const;

 private:
  double Fitted(double tokens) const;

  int64_t reports_ = 0;
  double first_tokens_ = 0;
  double first_seconds_ = 0;
  double tokens_ = 0;  // since the first report
  // Sums over reports of t n, t n^2, n^2, n^3, n^4, with n in thousands.
  double tn_ = 0, tn2_ = 0, n2_ = 0, n3_ = 0, n4_ = 0;
};

}  // namespace longspan::server
