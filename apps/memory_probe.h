// How fast this machine reads memory.
#pragma once

#include "base/result.h"
#include "tensor/thread_pool.h"

namespace longspan::apps {

// Bytes per second that the pool's threads read together, from a table that no cache holds (256
// MiB), each byte once and in order: the best of passes over a tenth of a second and more.
base::Result<double> MeasureReadRate(tensor::ThreadPool& pool);

}  // namespace longspan::apps
