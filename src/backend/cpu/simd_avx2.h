// Vectors of 8 floats with AVX2 and FMA. The operations are those of simd_avx512.h.
#pragma once

#include <cstdint>
#include <immintrin.h>

namespace longspan::backend::cpu {

struct Avx2 {
  using Vec = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kTileRows = 6;     // 12 accumulators,
  static constexpr int kTileVectors = 2;  // 2 vectors of W and a row's element: 15 of 16 registers
  static constexpr bool kBf16Dot = false;

  [[gnu::always_inline]] static Vec Set(float x) { return _mm256_set1_ps(x); }
  [[gnu::always_inline]] static Vec Load(const float* p) { return _mm256_loadu_ps(p); }
  [[gnu::always_inline]] static void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
  [[gnu::always_inline]] static Vec Load(const uint16_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
  }
  [[gnu::always_inline]] static void Store(uint16_t* p, Vec v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i result = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m256i packed =
        _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0b11011000);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  [[gnu::always_inline]] static Vec LoadWords(const uint32_t* p) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] static void StoreWords(uint32_t* p, Vec v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_castps_si256(v));
  }
  [[gnu::always_inline]] static Vec BroadcastWord(const char* p) {
    float word;
    __builtin_memcpy(&word, p, sizeof(word));
    return _mm256_set1_ps(word);
  }

  [[gnu::always_inline]] static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  [[gnu::always_inline]] static Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  [[gnu::always_inline]] static Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  [[gnu::always_inline]] static Vec MulAdd(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  // sum += a * b, for tiles that take all registers: left to itself, the compiler moves sums about
  // until some of them wait in memory, once in every step.
  [[gnu::always_inline]] static void AddProduct(Vec& sum, Vec a, Vec b) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  }
  [[gnu::always_inline]] static Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  [[gnu::always_inline]] static Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  [[gnu::always_inline]] static float ReduceAdd(Vec v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
  }
  [[gnu::always_inline]] static float ReduceMax(Vec v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
  }
  [[gnu::always_inline]] static Vec Round(Vec v) {
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // In two steps, so that n from -252 to 254 (results that are zero, subnormal or infinite) works.
  [[gnu::always_inline]] static Vec Scale(Vec v, Vec n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(v, PowerOfTwo(half)),
                         PowerOfTwo(_mm256_sub_epi32(whole, half)));
  }
  // x, but not below what Scale takes as an exponent: still 0 after it.
  [[gnu::always_inline]] static Vec LimitExponent(Vec x) {
    return _mm256_max_ps(_mm256_set1_ps(-200.0f), x);
  }

  [[gnu::always_inline]] static Vec LowHalf(Vec words) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
  }
  // The mask stays in memory: with sums, columns and a row's element the widest tiles fill all
  // registers, and GCC may keep the mask in one and put a sum on the stack, which costs a quarter
  // of the speed.
  [[gnu::always_inline]] static Vec HighHalf(Vec words) {
    alignas(32) static constexpr uint32_t kMask[8] = {0xffff0000, 0xffff0000, 0xffff0000,
                                                      0xffff0000, 0xffff0000, 0xffff0000,
                                                      0xffff0000, 0xffff0000};
    Vec high;
    __asm__("vandps %2, %1, %0" : "=x"(high) : "x"(words), "m"(kMask));
    return high;
  }
  [[gnu::always_inline]] static Vec PairWords(const uint16_t* low, const uint16_t* high) {
    const __m256i l = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
    return _mm256_castsi256_ps(_mm256_or_si256(l, _mm256_castps_si256(Load(high))));
  }

  [[gnu::always_inline]] static void Transpose(const char* const* rows, int64_t offset,
                                               uint32_t* to, int64_t stride) {
    const auto half = [&](int row, int64_t word) {
      return _mm_loadu_ps(reinterpret_cast<const float*>(rows[row]) + offset + word);
    };
    // Four words of two rows, put together as they are loaded: lanes that stay apart then.
    for (int64_t word = 0; word < 8; word += 4) {
      __m256 r[4];
      for (int i = 0; i < 4; ++i)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(half(i, word)), half(4 + i, word), 1);
      const __m256 low01 = _mm256_unpacklo_ps(r[0], r[1]);
      const __m256 high01 = _mm256_unpackhi_ps(r[0], r[1]);
      const __m256 low23 = _mm256_unpacklo_ps(r[2], r[3]);
      const __m256 high23 = _mm256_unpackhi_ps(r[2], r[3]);
      StoreWords(to + word * stride, _mm256_shuffle_ps(low01, low23, 0x44));
      StoreWords(to + (word + 1) * stride, _mm256_shuffle_ps(low01, low23, 0xee));
      StoreWords(to + (word + 2) * stride, _mm256_shuffle_ps(high01, high23, 0x44));
      StoreWords(to + (word + 3) * stride, _mm256_shuffle_ps(high01, high23, 0xee));
    }
  }

 private:
  [[gnu::always_inline]] static Vec PowerOfTwo(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace longspan::backend::cpu
