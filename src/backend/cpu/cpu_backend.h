// The fast backend for CPUs: own kernels for AVX-512 (with and without bf16 dot products), AVX2 and
// any other machine, picked at run time (isa.h).
#pragma once

#include "ops/backend.h"

namespace longspan::backend::cpu {

// Computes in f32 or bf16 (activations in bf16; norms, softmax, sums, router and logits in f32)
// over a KV cache of f32 or bf16. Every row's result is the same bits for any number of rows in the
// step and any number of threads. Queues are tensor::ThreadPool. The environment variable
// LONGSPAN_CPU_ISA (see isa.h) is read once; CreateQueue refuses a value that the machine lacks.
const ops::Backend& CpuBackend();

}  // namespace longspan::backend::cpu
