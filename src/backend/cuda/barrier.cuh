// Barriers in shared memory and the asynchronous copies that arrive at them (PTX ISA, "mbarrier",
// "cp.async", "cp.async.bulk.tensor").
#pragma once

#include <cstdint>

#include "backend/cuda/packed_weight.h"

namespace longspan::backend::cuda {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}
// Makes new barriers known to the copy engine; before the __syncthreads() that follows them.
__device__ inline void FenceNewBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async;" ::: "memory");
}

__device__ inline void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
__device__ inline void ArriveExpecting(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}
// Arrives when the copies that this thread has begun with CopyUnit are done.
__device__ inline void ArriveAfterCopies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}

// Until the phase of that parity is complete.
__device__ inline void WaitFor(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  }
}

// Ordinary and cp.async writes that this thread knows of, before what the matrix unit reads.
__device__ inline void FenceForMatrixUnit() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// 16 bytes, or zeros where `bytes` is 0, to a constant offset (in bytes) from the target, which
// costs no instruction.
template <int kOffset>
__device__ inline void CopyUnitTo(uint32_t target, const void* source, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0 + %3], [%1], 16, %2;" ::"r"(target), "l"(source),
               "r"(bytes), "n"(kOffset)
               : "memory");
}
__device__ inline void CopyUnit(uint32_t target, const void* source, bool valid) {
  CopyUnitTo<0>(target, source, valid ? 16 : 0);
}

// One box of the matrix, from that column and row on; what is outside of it is zero.
__device__ inline void CopyBox(uint32_t target, const TensorMap* map, int column, int row,
                               uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(target),
      "l"(map), "r"(SharedAddress(barrier)), "r"(column), "r"(row)
      : "memory");
}

}  // namespace longspan::backend::cuda
