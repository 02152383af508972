// How fast this machine's cores can multiply and add, at best: what kernels are measured against.
#pragma once

#include "tensor/thread_pool.h"

namespace longspan::backend::cpu {

// Operations per second of a loop of independent multiply-adds from registers, all threads of the
// pool together, with the active instruction set. A product of bf16 pairs counts 4 operations.
struct PeakRate {
  double bf16_gflops = 0;
  double f32_gflops = 0;
};

// Takes about `seconds` and all threads of the pool; best of many short rounds. Neighbours and
// clock changes move the figure: measure before and after what is to be compared with it.
PeakRate MeasurePeak(tensor::ThreadPool& pool, double seconds = 0.3);

}  // namespace longspan::backend::cpu
