// A softmax-weighted sum of rows that grows block by block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "backend/reference/wide_sums.h"

namespace longspan::backend::reference {

// Weights are relative to the largest score so far, and what was added before is scaled down when a
// larger one comes (Milakov and Gimelshein 2018).
class RunningSoftmax {
 public:
  // Rows whose scores are known before any of them is added up, at most.
  static constexpr int64_t kBlock = 64;

  // `sums` has room for `dim` doubles.
  RunningSoftmax(double* sums, int64_t dim) : sums_(sums), dim_(dim) {
    std::fill_n(sums_, dim_, 0.0);
  }

  // Rows of `dim` floats, from one to a block.
  void AddBlock(const double* scores, const float* const* rows, int64_t count) {
    const double largest = std::max(largest_, *std::max_element(scores, scores + count));
    // Of the first block it is exp(-infinity) = 0, on sums of 0.
    const double shrink = std::exp(largest_ - largest);
    weights_ *= shrink;
    for (int64_t d = 0; d < dim_; ++d) sums_[d] *= shrink;
    largest_ = largest;
    double weights[kBlock];
    for (int64_t i = 0; i < count; ++i) {
      weights[i] = std::exp(scores[i] - largest);
      weights_ += weights[i];
    }
    AddWeightedRows(weights, rows, count, sums_, dim_);
  }

  // The weighted mean [dim], in place of the sums: the last call.
  const double* Mean() {
    for (int64_t d = 0; d < dim_; ++d) sums_[d] /= weights_;
    return sums_;
  }

  void Write(float* out) const {
    // Of no rows it is 0.
    const double weights = weights_ > 0 ? weights_ : 1;
    for (int64_t d = 0; d < dim_; ++d) out[d] = static_cast<float>(sums_[d] / weights);
  }

  // The sum of exp(score) as m and l of ops/merge_attention.h; -infinity and 0 of no rows.
  void WriteExpSum(float* m_and_l) const {
    m_and_l[0] = static_cast<float>(largest_ * std::numbers::log2e);
    m_and_l[1] =
        weights_ > 0
            ? static_cast<float>(weights_ * std::exp2(largest_ * std::numbers::log2e - m_and_l[0]))
            : 0;
  }

 private:
  double* sums_;
  int64_t dim_;
  double largest_ = -std::numeric_limits<double>::infinity();
  double weights_ = 0;
};

}  // namespace longspan::backend::reference
