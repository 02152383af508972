// The backend for NVIDIA's Hopper GPUs.
#pragma once

#include "base/result.h"
#include "ops/backend.h"

namespace longspan::backend::cuda {

// Whether this program has the backend at all.
bool CudaIsBuilt();

// Computes in bf16 or f32 (activations and products; sums, norms, softmax, router and logits in
// f32) over a KV cache of f32 or bf16. Queues are streams (cuda_queue.h); one device per queue,
// QueueOptions::device counted from the first visible one. Fails with one sentence where the
// program was built without CUDA, there is no GPU, none of Hopper's generation, or the driver is
// older than what the program was built for. Lives as long as the program.
base::Result<const ops::Backend*> CudaBackend();

}  // namespace longspan::backend::cuda
