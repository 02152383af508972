// Vectors of 4 floats in the compiler's own vector types: what every machine has (SSE2, NEON). The
// operations are those of simd_avx512.h.
#pragma once

#include <cstdint>

namespace longspan::backend::cpu {

struct Portable {
  typedef float Vec __attribute__((vector_size(16)));     // NOLINT(modernize-use-using)
  typedef int32_t Ints __attribute__((vector_size(16)));  // NOLINT(modernize-use-using)
  static constexpr int kWidth = 4;
  static constexpr int kTileRows = 4;
  static constexpr int kTileVectors = 2;
  static constexpr bool kBf16Dot = false;

  [[gnu::always_inline]] static Vec Set(float x) { return Vec{x, x, x, x}; }
  [[gnu::always_inline]] static Vec Load(const float* p) {
    Vec v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  [[gnu::always_inline]] static void Store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }
  [[gnu::always_inline]] static Vec Load(const uint16_t* p) { return (Vec)(Widen(p) << 16); }
  [[gnu::always_inline]] static void Store(uint16_t* p, Vec v) {
    const Ints bits = (Ints)v;
    const Ints rounded = bits + 0x7fff + ((bits >> 16) & 1);
    // NaN differs from itself, and stays one.
    const Ints result = v == v ? rounded : bits | 0x400000;  // NOLINT(misc-redundant-expression)
    for (int i = 0; i < 4; ++i)
      p[i] = static_cast<uint16_t>(static_cast<uint32_t>(result[i]) >> 16);
  }
  [[gnu::always_inline]] static Vec LoadWords(const uint32_t* p) {
    Vec v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  [[gnu::always_inline]] static void StoreWords(uint32_t* p, Vec v) {
    __builtin_memcpy(p, &v, sizeof(v));
  }
  [[gnu::always_inline]] static Vec BroadcastWord(const char* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return (Vec)(Ints{word, word, word, word});
  }

  [[gnu::always_inline]] static Vec Add(Vec a, Vec b) { return a + b; }
  [[gnu::always_inline]] static Vec Sub(Vec a, Vec b) { return a - b; }
  [[gnu::always_inline]] static Vec Mul(Vec a, Vec b) { return a * b; }
  [[gnu::always_inline]] static Vec Div(Vec a, Vec b) { return a / b; }
  [[gnu::always_inline]] static Vec MulAdd(Vec a, Vec b, Vec c) { return a * b + c; }
  [[gnu::always_inline]] static void AddProduct(Vec& sum, Vec a, Vec b) { sum = MulAdd(a, b, sum); }
  [[gnu::always_inline]] static Vec Max(Vec a, Vec b) { return a > b ? a : b; }
  [[gnu::always_inline]] static Vec Min(Vec a, Vec b) { return a < b ? a : b; }
  [[gnu::always_inline]] static float ReduceAdd(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  [[gnu::always_inline]] static float ReduceMax(Vec v) {
    const float a = v[0] > v[2] ? v[0] : v[2];
    const float b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
  }
  // For |v| < 2^22.
  [[gnu::always_inline]] static Vec Round(Vec v) {
    const Vec magic = Set(0x1.8p23f);
    return (v + magic) - magic;
  }
  [[gnu::always_inline]] static Vec Scale(Vec v, Vec n) {
    const Ints whole = __builtin_convertvector(n, Ints);
    const Ints half = whole >> 1;
    return v * (Vec)((half + 127) << 23) * (Vec)((whole - half + 127) << 23);
  }
  // x, but not below what Scale takes as an exponent: still 0 after it.
  [[gnu::always_inline]] static Vec LimitExponent(Vec x) { return Max(Set(-200.0f), x); }

  [[gnu::always_inline]] static Vec LowHalf(Vec words) { return (Vec)((Ints)words << 16); }
  [[gnu::always_inline]] static Vec HighHalf(Vec words) { return (Vec)((Ints)words & ~0xffff); }
  [[gnu::always_inline]] static Vec PairWords(const uint16_t* low, const uint16_t* high) {
    return (Vec)(Widen(low) | (Widen(high) << 16));
  }

  [[gnu::always_inline]] static void Transpose(const char* const* rows, int64_t offset,
                                               uint32_t* to, int64_t stride) {
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        __builtin_memcpy(to + j * stride + i, rows[i] + 4 * (offset + j), 4);
  }

 private:
  [[gnu::always_inline]] static Ints Widen(const uint16_t* p) {
    return Ints{p[0], p[1], p[2], p[3]};
  }
};

}  // namespace longspan::backend::cpu
