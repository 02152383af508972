// Kernels that go over one row (see KernelTable).
#pragma once

#include <cstdint>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/simd_math.h"

namespace longspan::backend::cpu {

template <typename V, typename From, typename To>
void Convert(const void* from, void* to, int64_t n) {
  if constexpr (sizeof(From) == sizeof(To)) {
    __builtin_memcpy(to, from, n * sizeof(From));
  } else {
    for (int64_t i = 0; i < n; i += V::kWidth)
      StorePartial<V>(static_cast<To*>(to) + i, n - i,
                      LoadPartial<V>(static_cast<const From*>(from) + i, n - i));
  }
}

template <typename V, typename T>
void RmsNormRow(const void* x, const float* weight, double epsilon, int64_t n, void* out) {
  const auto* from = static_cast<const T*>(x);
  auto squares = V::Set(0);
  for (int64_t i = 0; i < n; i += V::kWidth) {
    const auto v = LoadPartial<V>(from + i, n - i);
    squares = V::MulAdd(v, v, squares);
  }
  const double mean = static_cast<double>(V::ReduceAdd(squares)) / static_cast<double>(n);
  const auto factor = V::Set(static_cast<float>(1.0 / __builtin_sqrt(mean + epsilon)));
  for (int64_t i = 0; i < n; i += V::kWidth) {
    const auto v = V::Mul(LoadPartial<V>(from + i, n - i), factor);
    StorePartial<V>(static_cast<T*>(out) + i, n - i, V::Mul(v, LoadPartial<V>(weight + i, n - i)));
  }
}

// x - mean, for the first `n` lanes (n <= V::kWidth); 0 beyond.
template <typename V, typename T>
[[gnu::always_inline]] inline typename V::Vec Centred(const T* x, int64_t n, typename V::Vec mean) {
  const auto centred = V::Sub(LoadPartial<V>(x, n), mean);
  if (n >= V::kWidth) return centred;
  float lanes[V::kWidth];
  V::Store(lanes, centred);
  return LoadPartial<V>(static_cast<const float*>(lanes), n);
}

// The sum in f32 gives a mean near the elements; that of what is left of them mends it, so that a
// large mean costs no digits.
template <typename V, typename T>
void LayerNormRow(const void* x, const float* weight, const float* bias, double epsilon, int64_t n,
                  void* out) {
  const auto* from = static_cast<const T*>(x);
  const auto count = static_cast<double>(n);
  auto sum = V::Set(0);
  for (int64_t i = 0; i < n; i += V::kWidth) sum = V::Add(sum, LoadPartial<V>(from + i, n - i));
  const auto mean = V::Set(static_cast<float>(static_cast<double>(V::ReduceAdd(sum)) / count));
  auto left = V::Set(0);
  for (int64_t i = 0; i < n; i += V::kWidth) left = V::Add(left, Centred<V>(from + i, n - i, mean));
  const auto rest = V::Set(static_cast<float>(static_cast<double>(V::ReduceAdd(left)) / count));
  auto squares = V::Set(0);
  for (int64_t i = 0; i < n; i += V::kWidth) {
    float lanes[V::kWidth];
    V::Store(lanes, V::Sub(Centred<V>(from + i, n - i, mean), rest));
    const auto v = LoadPartial<V>(static_cast<const float*>(lanes), n - i);
    squares = V::MulAdd(v, v, squares);
  }
  const double variance = static_cast<double>(V::ReduceAdd(squares)) / count;
  const auto factor = V::Set(static_cast<float>(1.0 / __builtin_sqrt(variance + epsilon)));
  for (int64_t i = 0; i < n; i += V::kWidth) {
    const auto v = V::Mul(V::Sub(Centred<V>(from + i, n - i, mean), rest), factor);
    StorePartial<V>(
        static_cast<T*>(out) + i, n - i,
        V::MulAdd(v, LoadPartial<V>(weight + i, n - i), LoadPartial<V>(bias + i, n - i)));
  }
}

template <typename V, typename T>
void AddRow(void* x, const void* y, int64_t n) {
  auto* to = static_cast<T*>(x);
  const auto* from = static_cast<const T*>(y);
  for (int64_t i = 0; i < n; i += V::kWidth)
    StorePartial<V>(to + i, n - i,
                    V::Add(LoadPartial<V>(to + i, n - i), LoadPartial<V>(from + i, n - i)));
}

template <typename V, typename T>
void SiluMulRow(const void* gate, const void* up, int64_t n, void* out) {
  const auto one = V::Set(1);
  for (int64_t i = 0; i < n; i += V::kWidth) {
    const auto g = LoadPartial<V>(static_cast<const T*>(gate) + i, n - i);
    const auto u = LoadPartial<V>(static_cast<const T*>(up) + i, n - i);
    const auto silu = V::Div(g, V::Add(one, Exp<V>(V::Sub(V::Set(0), g))));
    StorePartial<V>(static_cast<T*>(out) + i, n - i, V::Mul(silu, u));
  }
}

template <typename V, typename T>
void RotateHalves(void* x, const float* cosines, const float* sines, int64_t half) {
  auto* first = static_cast<T*>(x);
  T* second = first + half;
  for (int64_t i = 0; i < half; i += V::kWidth) {
    const int64_t n = half - i;
    const auto a = LoadPartial<V>(first + i, n);
    const auto b = LoadPartial<V>(second + i, n);
    const auto c = LoadPartial<V>(cosines + i, n);
    const auto s = LoadPartial<V>(sines + i, n);
    StorePartial<V>(first + i, n, V::Sub(V::Mul(a, c), V::Mul(b, s)));
    StorePartial<V>(second + i, n, V::Add(V::Mul(b, c), V::Mul(a, s)));
  }
}

template <typename V, typename T>
void Combine(const CombineRow& row) {
  for (int64_t i = 0; i < row.columns; i += V::kWidth) {
    const int64_t n = row.columns - i;
    auto sum = V::Set(0);
    for (int64_t j = 0; j < row.terms; ++j) {
      if (row.places[j] < 0) continue;
      const auto* x = reinterpret_cast<const T*>(row.x + row.places[j] * row.x_stride);
      sum = V::MulAdd(V::Set(row.weights[j]), LoadPartial<V>(x + i, n), sum);
    }
    StorePartial<V>(reinterpret_cast<T*>(row.out) + i, n, sum);
  }
}

// NaN counts as minus infinity, infinity as the largest float.
template <typename V>
[[gnu::always_inline]] inline typename V::Vec ReadLogits(const float* p, int64_t n) {
  const auto numbers = V::Max(LoadPartial<V>(p, n), V::Set(-__builtin_inff()));
  return V::Min(numbers, V::Set(__FLT_MAX__));
}

// Sums of 64 vectors in f32, their total in double.
template <typename V>
void ExpSum(const float* x, int64_t n, float* max, double* sum) {
  constexpr int64_t kGroup = 64 * V::kWidth;
  const int64_t whole = n / V::kWidth * V::kWidth;
  // The last elements, and lanes that change nothing.
  float rest[V::kWidth];
  V::Store(rest, V::Set(-__builtin_inff()));
  for (int64_t i = whole; i < n; ++i) rest[i - whole] = x[i];
  const auto last = ReadLogits<V>(rest, V::kWidth);

  auto lanes = last;
  for (int64_t i = 0; i < whole; i += V::kWidth)
    lanes = V::Max(lanes, ReadLogits<V>(x + i, V::kWidth));
  *max = V::ReduceMax(lanes);
  const auto largest = V::Set(*max);
  double total = static_cast<double>(V::ReduceAdd(Exp<V>(V::Sub(last, largest))));
  for (int64_t group = 0; group < whole; group += kGroup) {
    const int64_t end = whole - group < kGroup ? whole : group + kGroup;
    auto part = V::Set(0);
    for (int64_t i = group; i < end; i += V::kWidth)
      part = V::Add(part, Exp<V>(V::Sub(ReadLogits<V>(x + i, V::kWidth), largest)));
    total += static_cast<double>(V::ReduceAdd(part));
  }
  *sum = total;
}

// Twelve chains hide the latency of the multiply-add and fit in the registers of every set.
template <typename V, bool kBf16>
double Peak(int64_t iterations) {
  constexpr int kChains = 12;
  typename V::Vec sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = V::Set(static_cast<float>(i));
  uint32_t zeros[V::kWidth] = {};
  // Hides from the compiler what is multiplied.
  asm volatile("" : "+m"(zeros));
  const auto x = V::LoadWords(zeros);
  [[maybe_unused]] const auto low = V::LowHalf(x);
  [[maybe_unused]] const auto high = V::HighHalf(x);
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      if constexpr (kBf16 && V::kBf16Dot) {
        sum = V::DotBf16(sum, x, x);
      } else if constexpr (kBf16) {
        sum = V::MulAdd(low, x, sum);
        sum = V::MulAdd(high, x, sum);
      } else {
        sum = V::MulAdd(x, x, sum);
      }
    }
  }
  for (int i = 1; i < kChains; ++i) sums[0] = V::Add(sums[0], sums[i]);
  float used[V::kWidth];
  V::Store(used, sums[0]);
  asm volatile("" : : "m"(used));
  return static_cast<double>(iterations) * kChains * V::kWidth * (kBf16 ? 4 : 2);
}

}  // namespace longspan::backend::cpu
