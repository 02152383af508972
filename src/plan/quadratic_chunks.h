// The published alternative to planning: chunks of equal time by a quadratic fit, smoothed.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"

namespace longspan::plan {

// T(l) = a l^2 + b l + c of a chunk of l tokens without a prefix.
struct QuadraticTime {
  double a = 0;
  double b = 0;
  double c = 0;
};

struct LengthSeconds {
  int64_t length = 0;
  double seconds = 0;
};

// How SGLang's --enable-dynamic-chunking (2025) chooses chunks, for comparison with PlanChunks. It
// looks neither at the prompt's length nor at the number of stages.
class QuadraticChunks {
 public:
  struct Options {
    int64_t first_tokens = 8192;  // of the first chunk, whose time the others aim at
    double smoothing = 0.75;      // 0: all like the first one, 1: equal times by the fit
    int64_t page_size = 64;
    int64_t context_length = std::numeric_limits<int64_t>::max();
    int64_t max_tokens = 16384;
  };

  // Least squares over all but the first measurement, which is of a cold machine. Fewer than 8
  // others, or times that do not grow as a convex curve, are an error: then there is nothing to
  // choose chunks by.
  static base::Result<QuadraticTime> Fit(std::span<const LengthSeconds> measurements);

  // The 128 lengths, longest first, that the algorithm measures when it starts.
  static std::vector<int64_t> ProbeLengths(int64_t first_tokens);

  QuadraticChunks(const QuadraticTime& time, const Options& options)
      : time_(time), options_(options) {}

  // Tokens of a chunk behind `length` positions; the first chunk of a prompt does not ask.
  int64_t NextTokens(int64_t length) const;

  // Where the steps on the way to it can be seen: the chunk of equal time, and with smoothing.
  double EqualTimeTokens(int64_t length) const;
  double SmoothedTokens(int64_t length) const;

 private:
  QuadraticTime time_;
  Options options_;
};

}  // namespace longspan::plan
