// What the device's memory can do.
#pragma once

#include "base/result.h"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

// Bytes per second, read and written ones together, of a large copy within the device of a queue of
// this backend.
base::Result<double> MeasureCopyRate(tensor::Queue& queue);

}  // namespace longspan::backend::cuda
