#include "backend/reference/wide_sums.h"

// The clones differ in how many elements an instruction takes, not in the order of the sums, and
// neither fuses a product with a sum: the results are the same bits. The sanitizers' runtime is not
// up yet when the loader asks which clone to take.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LONGSPAN_WIDE_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LONGSPAN_WIDE_CLONES
#endif

namespace longspan::backend::reference {

LONGSPAN_WIDE_CLONES
double Dot(const double* x, const float* y, int64_t n) {
  // Independent partial sums, so that the additions need not wait for each other.
  constexpr int64_t kSums = 16;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t j = 0; j < kSums; ++j) sums[j] += x[i + j] * static_cast<double>(y[i + j]);
  for (int64_t j = 0; i + j < n; ++j) sums[j] += x[i + j] * static_cast<double>(y[i + j]);
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

LONGSPAN_WIDE_CLONES
void AddScaled(double factor, const float* x, double* sum, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += factor * static_cast<double>(x[i]);
}

}  // namespace longspan::backend::reference
