// What the kernels share: partial vectors, elements by type, and powers of two.
#pragma once

#include <cstdint>

namespace longspan::backend::cpu {

// Elements as the kernels see them: float, or the bits of a bf16.
using Bfloat = uint16_t;

// The first `n` elements (n <= V::kWidth), then zeros.
template <typename V, typename T>
[[gnu::always_inline]] inline typename V::Vec LoadPartial(const T* p, int64_t n) {
  if (n >= V::kWidth) return V::Load(p);
  T elements[V::kWidth] = {};
  for (int64_t i = 0; i < n; ++i) elements[i] = p[i];
  return V::Load(elements);
}

template <typename V, typename T>
[[gnu::always_inline]] inline void StorePartial(T* p, int64_t n, typename V::Vec v) {
  if (n >= V::kWidth) return V::Store(p, v);
  T elements[V::kWidth];
  V::Store(elements, v);
  for (int64_t i = 0; i < n; ++i) p[i] = elements[i];
}

// 2^f for f in [-1/2, 1/2], relative error 1.7e-7: Cephes' polynomial for exp2f (Moshier). Exactly
// 1 at 0.
template <typename V>
[[gnu::always_inline]] inline typename V::Vec Exp2OfFraction(typename V::Vec f) {
  auto p = V::Set(1.535336188319500e-4f);
  p = V::MulAdd(p, f, V::Set(1.339887440266574e-3f));
  p = V::MulAdd(p, f, V::Set(9.618437357674640e-3f));
  p = V::MulAdd(p, f, V::Set(5.550332471162809e-2f));
  p = V::MulAdd(p, f, V::Set(2.402264791363012e-1f));
  p = V::MulAdd(p, f, V::Set(6.931472028550421e-1f));
  return V::MulAdd(p, f, V::Set(1.0f));
}

// The same to 2.8e-6, for what is rounded to bf16 next.
template <typename V>
[[gnu::always_inline]] inline typename V::Vec CoarseExp2OfFraction(typename V::Vec f) {
  auto p = V::Set(9.582853028931025e-3f);
  p = V::MulAdd(p, f, V::Set(5.590642467796743e-2f));
  p = V::MulAdd(p, f, V::Set(2.402409861182550e-1f));
  p = V::MulAdd(p, f, V::Set(6.931241934032404e-1f));
  return V::MulAdd(p, f, V::Set(1.0f));
}

// 2^x for x <= 0, to 2 units in the last place or (kCoarse) to 2.8e-6; exactly 1 at 0; exactly 0
// below -150.
template <typename V, bool kCoarse = false>
[[gnu::always_inline]] inline typename V::Vec Exp2OfNegative(typename V::Vec x) {
  x = V::LimitExponent(x);
  const auto n = V::Round(x);
  const auto f = V::Sub(x, n);
  return V::Scale(kCoarse ? CoarseExp2OfFraction<V>(f) : Exp2OfFraction<V>(f), n);
}

// e^x to 2 units in the last place; 0 below -104, infinity above 88.8.
template <typename V>
[[gnu::always_inline]] inline typename V::Vec Exp(typename V::Vec x) {
  constexpr float kLog2E = 1.44269504088896341f;
  x = V::Max(V::Set(-105.0f), V::Min(V::Set(89.0f), x));
  const auto n = V::Round(V::Mul(x, V::Set(kLog2E)));
  // ln 2 = 0.693359375 - 2.12194440e-4: the first part times n is exact.
  auto f = V::Sub(x, V::Mul(n, V::Set(0.693359375f)));
  f = V::Sub(f, V::Mul(n, V::Set(-2.12194440e-4f)));
  return V::Scale(Exp2OfFraction<V>(V::Mul(f, V::Set(kLog2E))), n);
}

}  // namespace longspan::backend::cpu
