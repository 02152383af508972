// The two loops that take nearly all of the time.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// sum of x[i] * y[i] in double, in an order that depends on n only. Where x holds floats the
// products are exact.
double Dot(const double* x, const float* y, int64_t n);

// sum[i] += weights[0] * rows[0][i], then weights[1] * rows[1][i], and so on, for i in [0, n).
void AddWeightedRows(const double* weights, const float* const* rows, int64_t count, double* sum,
                     int64_t n);

}  // namespace longspan::backend::reference
