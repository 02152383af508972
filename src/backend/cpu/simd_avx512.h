// Vectors of 16 floats with AVX-512 (F, BW, DQ, VL), with or without its bf16 dot product.
#pragma once

#include <cstdint>
#include <immintrin.h>

namespace longspan::backend::cpu {

template <bool kNativeBf16>
struct Avx512 {
  using Vec = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kTileRows = 6;     // 24 accumulators,
  static constexpr int kTileVectors = 4;  // 4 vectors of W and a row's element: 29 of 32 registers
  static constexpr bool kBf16Dot = kNativeBf16;

  [[gnu::always_inline]] static Vec Set(float x) { return _mm512_set1_ps(x); }
  [[gnu::always_inline]] static Vec Load(const float* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  [[gnu::always_inline]] static Vec Load(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
  }
  // Rounds to nearest, ties to even.
  [[gnu::always_inline]] static void Store(uint16_t* p, Vec v) {
    auto* target = reinterpret_cast<__m256i*>(p);
    if constexpr (kNativeBf16) {
      _mm256_storeu_si256(target, (__m256i)_mm512_cvtneps_pbh(v));
    } else {
      const __m512i bits = _mm512_castps_si512(v);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
      const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
      rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
      _mm256_storeu_si256(target, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    }
  }
  [[gnu::always_inline]] static Vec LoadWords(const uint32_t* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static void StoreWords(uint32_t* p, Vec v) { _mm512_storeu_ps(p, v); }
  // 32 bits, repeated.
  [[gnu::always_inline]] static Vec BroadcastWord(const char* p) {
    float word;
    __builtin_memcpy(&word, p, sizeof(word));
    return _mm512_set1_ps(word);
  }

  [[gnu::always_inline]] static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  [[gnu::always_inline]] static Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  // a * b + c with one rounding where the machine has it.
  [[gnu::always_inline]] static Vec MulAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  // sum += a * b.
  [[gnu::always_inline]] static void AddProduct(Vec& sum, Vec a, Vec b) { sum = MulAdd(a, b, sum); }
  // The larger; b where one is NaN.
  [[gnu::always_inline]] static Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  [[gnu::always_inline]] static Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  [[gnu::always_inline]] static float ReduceAdd(Vec v) { return _mm512_reduce_add_ps(v); }
  [[gnu::always_inline]] static float ReduceMax(Vec v) { return _mm512_reduce_max_ps(v); }
  [[gnu::always_inline]] static Vec Round(Vec v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // v * 2^n for whole n.
  [[gnu::always_inline]] static Vec Scale(Vec v, Vec n) { return _mm512_scalef_ps(v, n); }
  // x as far as Scale needs it as an exponent: nothing is too small here.
  [[gnu::always_inline]] static Vec LimitExponent(Vec x) { return x; }

  // sum + a.low * b.low + a.high * b.high of bf16 pairs.
  [[gnu::always_inline]] static Vec DotBf16(Vec sum, Vec a, Vec b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a),
                            (__m512bh)_mm512_castps_si512(b));
  }
  // Pairs of bf16 ones.
  [[gnu::always_inline]] static Vec PairsOfOnes() {
    return _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80));
  }
  // The halves of bf16 pairs as floats.
  [[gnu::always_inline]] static Vec LowHalf(Vec words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16));
  }
  [[gnu::always_inline]] static Vec HighHalf(Vec words) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(~0xffff)));
  }
  // Pairs (low[i], high[i]).
  [[gnu::always_inline]] static Vec PairWords(const uint16_t* low, const uint16_t* high) {
    const __m512i l =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
    return _mm512_castsi512_ps(_mm512_or_si512(l, _mm512_castps_si512(Load(high))));
  }

  // to[j * stride + i] = rows[i][offset + j], 16 x 16 words.
  [[gnu::always_inline]] static void Transpose(const char* const* rows, int64_t offset,
                                               uint32_t* to, int64_t stride) {
    __m512 r[16];
    __m512 t[16];
    for (int i = 0; i < 16; ++i)
      r[i] = _mm512_loadu_ps(reinterpret_cast<const float*>(rows[i]) + offset);
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    // r[4q + m] holds, in its 128-bit lane k, word 4k + m of rows 4q .. 4q + 3.
    for (int q = 0; q < 16; q += 4) {
      r[q] = UnpackLow64(t[q], t[q + 2]);
      r[q + 1] = UnpackHigh64(t[q], t[q + 2]);
      r[q + 2] = UnpackLow64(t[q + 1], t[q + 3]);
      r[q + 3] = UnpackHigh64(t[q + 1], t[q + 3]);
    }
    for (int m = 0; m < 4; ++m) {
      const __m512 low01 = _mm512_shuffle_f32x4(r[m], r[4 + m], 0x88);
      const __m512 high01 = _mm512_shuffle_f32x4(r[m], r[4 + m], 0xdd);
      const __m512 low23 = _mm512_shuffle_f32x4(r[8 + m], r[12 + m], 0x88);
      const __m512 high23 = _mm512_shuffle_f32x4(r[8 + m], r[12 + m], 0xdd);
      _mm512_storeu_ps(to + m * stride, _mm512_shuffle_f32x4(low01, low23, 0x88));
      _mm512_storeu_ps(to + (4 + m) * stride, _mm512_shuffle_f32x4(high01, high23, 0x88));
      _mm512_storeu_ps(to + (8 + m) * stride, _mm512_shuffle_f32x4(low01, low23, 0xdd));
      _mm512_storeu_ps(to + (12 + m) * stride, _mm512_shuffle_f32x4(high01, high23, 0xdd));
    }
  }

 private:
  [[gnu::always_inline]] static Vec UnpackLow64(Vec a, Vec b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  [[gnu::always_inline]] static Vec UnpackHigh64(Vec a, Vec b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
};

}  // namespace longspan::backend::cpu
