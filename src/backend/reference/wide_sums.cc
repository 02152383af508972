#include "backend/reference/wide_sums.h"

#include <cstring>

// The clones differ in how many elements an instruction takes, not in the order of the sums, and
// neither fuses a product with a sum: the results are the same bits. The sanitizers' runtime is not
// up yet when the loader asks which clone to take.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LONGSPAN_WIDE_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LONGSPAN_WIDE_CLONES
#endif

namespace longspan::backend::reference {
namespace {

// Four elements that are computed alike; the compiler picks the instructions.
constexpr int64_t kLanes = 4;
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));

// Independent sums, so that the additions need not wait for each other.
constexpr int64_t kVectors = 4;
constexpr int64_t kSums = kLanes * kVectors;

inline void Load(const double* x, Lanes& lanes) { std::memcpy(&lanes, x, sizeof(lanes)); }
inline void Load(const float* x, Lanes& lanes) { lanes = Lanes{x[0], x[1], x[2], x[3]}; }
inline void Store(const Lanes& lanes, double* x) { std::memcpy(x, &lanes, sizeof(lanes)); }

}  // namespace

LONGSPAN_WIDE_CLONES
double Dot(const double* x, const float* y, int64_t n) {
  Lanes vectors[kVectors] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t v = 0; v < kVectors; ++v) {
      Lanes a;
      Lanes b;
      Load(x + i + v * kLanes, a);
      Load(y + i + v * kLanes, b);
      vectors[v] += a * b;
    }
  }
  double sums[kSums];
  for (int64_t v = 0; v < kVectors; ++v) Store(vectors[v], sums + v * kLanes);
  for (int64_t j = 0; i + j < n; ++j) sums[j] += x[i + j] * static_cast<double>(y[i + j]);
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

LONGSPAN_WIDE_CLONES
void AddWeightedRows(const double* weights, const float* const* rows, int64_t count, double* sum,
                     int64_t n) {
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    // They stay in registers while the rows go by.
    Lanes vectors[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) Load(sum + i + v * kLanes, vectors[v]);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t v = 0; v < kVectors; ++v) {
        Lanes x;
        Load(rows[r] + i + v * kLanes, x);
        vectors[v] += weights[r] * x;
      }
    }
    for (int64_t v = 0; v < kVectors; ++v) Store(vectors[v], sum + i + v * kLanes);
  }
  for (; i < n; ++i)
    for (int64_t r = 0; r < count; ++r) sum[i] += weights[r] * static_cast<double>(rows[r][i]);
}

}  // namespace longspan::backend::reference
