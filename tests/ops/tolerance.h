// How far a backend may be from the reference, derived from the arithmetic that the contracts in
// ops/ ask for: exact inputs of the compute type, sums in f32 or wider in any order, one rounding
// to the output's type. The reference itself rounds to f32 once. All bounds are absolute.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/dtype.h"

namespace longspan::op_suite {

// Largest relative error of one rounding to nearest.
constexpr double kUnitF32 = 0x1p-24;
constexpr double kUnitBf16 = 0x1p-8;
constexpr double Unit(tensor::DType type) {
  return type == tensor::DType::kBf16 ? kUnitBf16 : kUnitF32;
}

// What a result so small that it is flushed to zero may lose, times a generous number of terms.
constexpr double kUnderflow = 0x1p-110;

// An exponential in f32 by a polynomial is good for this, for an argument that is exact.
constexpr double kExpError = 8 * kUnitF32;

// Relative error of n roundings in f32 on the way to a value (Higham 2002, lemma 3.1).
constexpr double Gamma(int64_t n) {
  const double nu = static_cast<double>(n) * kUnitF32;
  return nu / (1 - nu);
}

// A value computed with an absolute error, then rounded to `type`; the reference's rounding.
inline double Rounded(double value, double error, tensor::DType type) {
  return error + Unit(type) * (std::abs(value) + error) + kUnitF32 * std::abs(value) + kUnderflow;
}

// sum of n products: every product meets at most n roundings (its own, and n - 1 additions) in any
// order. `magnitude` is the sum of their absolute values.
inline double SumOfProducts(double value, int64_t n, double magnitude, tensor::DType type) {
  return Rounded(value, Gamma(n) * magnitude, type);
}

// x / sqrt(mean(x^2) + epsilon) * weight: the mean of d positive terms has relative error
// gamma(d + 2), of which the root halves; a root and a division of 2 ulp (4 u) each, two products.
inline double RmsNorm(double value, int64_t d, tensor::DType type) {
  return Rounded(value, (Gamma(d + 2) / 2 + 10 * kUnitF32) * std::abs(value), type);
}

// (x - mean) / sqrt(variance + epsilon) * weight + bias: the mean of d has an error of gamma(d + 2)
// times the largest |x - mean|, `spread`, in units of the root, and |mean| that of one rounding
// more; the root has half the relative error of a mean of d squares. `scaled` is the value without
// the bias.
inline double LayerNorm(double value, double scaled, double weight, double spread, int64_t d,
                        tensor::DType type) {
  const double centre = Gamma(d + 4) * spread * std::abs(weight);
  const double relative = Gamma(d + 2) + 12 * kUnitF32;
  return Rounded(value, centre + relative * std::abs(scaled), type);
}

// silu(gate) * up: exp of -gate, an argument reduced with one rounding; a sum, a division of 2 ulp,
// two products.
inline double SiluMul(double value, double gate, tensor::DType type) {
  const double relative = kExpError + (std::abs(gate) + 8) * kUnitF32;
  return Rounded(value, relative * std::abs(value), type);
}

// cos and sin of an f32 angle: 2 ulp below one.
constexpr double kRopeTableError = 0x1p-23 + kUnitF32;

// a cos - b sin: each product rounded, then the difference. `magnitude` = |a cos| + |b sin|.
inline double Rope(double value, double magnitude, tensor::DType type) {
  return SumOfProducts(value, 2, magnitude, type);
}

// One of n softmax weights, all logits within `range` of the largest: exp of a rounded difference,
// a sum of n, a division.
inline double SoftmaxWeight(double value, int64_t n, double range) {
  const double relative = 2 * (kExpError + range * kUnitF32) + Gamma(n + 4);
  return Rounded(value, relative * std::abs(value), tensor::DType::kF32);
}

// logit - log(sum of exp): the logarithm turns the relative error of the sum of n into an absolute
// one; the largest logit, the logarithm and the differences are rounded.
inline double Logprob(double value, int64_t n, double range, double largest) {
  const double sum = kExpError + range * kUnitF32 + Gamma(n);
  const double roundings =
      4 * kUnitF32 * (std::abs(largest) + std::log(static_cast<double>(n)) + std::abs(value));
  return sum + roundings + kUnderflow;
}

struct AttentionShape {
  int64_t head_dim = 0;
  int64_t length = 0;          // positions attended to
  double score_magnitude = 0;  // scale * sum |q| |k| of any of them, at most
  double value_magnitude = 0;  // sum of weight * |v|
  double score_error = 0;      // of any score, from keys that are not exact
  double value_error = 0;      // of any element of a value, likewise
};

// A score has the error delta = gamma(head_dim + 2) * score_magnitude; it differs from the largest
// by at most twice the magnitude, and so does the largest from the first block's: rounded
// differences under the exponential. Numerator and denominator are sums over `length`, rescaled
// once per block of at least 16 positions with an exponential each. The largest score itself
// cancels. With bf16 inputs the weights may be rounded to bf16 for the product with V.
inline double Attention(double value, const AttentionShape& shape, tensor::DType type,
                        bool bf16_weights) {
  const double delta = Gamma(shape.head_dim + 2) * shape.score_magnitude + shape.score_error;
  const double differences = 4 * shape.score_magnitude * kUnitF32;
  const double blocks = static_cast<double>((shape.length + 15) / 16);
  const double sums = Gamma(shape.length) + blocks * (kExpError + kUnitF32);
  const double eta = std::expm1(delta + differences + kExpError + sums);
  const double relative = 2 * eta / (1 - eta) + 2 * kUnitF32 + (bf16_weights ? kUnitBf16 : 0);
  return Rounded(value, relative * shape.value_magnitude + shape.value_error, type);
}

}  // namespace longspan::op_suite
