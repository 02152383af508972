// The two loops that take nearly all of the time.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// sum of x[i] * y[i] in double, in an order that depends on n only. Where x holds floats the
// products are exact.
double Dot(const double* x, const float* y, int64_t n);

// sum[i] += factor * x[i].
void AddScaled(double factor, const float* x, double* sum, int64_t n);

}  // namespace longspan::backend::reference
