// cuBLASLt, loaded when it is needed: the library is larger than this program by an order of
// magnitude, and the program starts where there is none.
#pragma once

#include "base/status.h"

namespace longspan::backend::cuda {

// Loads libcublasLt and finds the functions that cublas_lt.cc forwards; the functions of
// <cublasLt.h> may be called after it has returned ok. NotFound with where it was looked for.
base::Status LoadCublasLt();

}  // namespace longspan::backend::cuda
