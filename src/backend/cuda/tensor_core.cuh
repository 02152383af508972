// The instructions that the attention kernels are made of: asynchronous copies into shared memory,
// fragments of it in registers, and products of them (PTX ISA 8.x, sm_80 and later).
#pragma once

#include <cstdint>

#include "backend/cuda/barrier.cuh"
#include "backend/cuda/element.cuh"

namespace longspan::backend::cuda {

// 16 bytes, both sides aligned to that; zeros where not `valid` (`from` is not read then).
__device__ inline void CopyAsync16(uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most `kPending` groups of this thread are not done.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void LoadMatrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// c [16, 8] += a [16, 16] b [16, 8], summed in f32. A row of c depends on that row of a alone.
__device__ inline void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x to two units in the last place; 0 of minus infinity.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// A matrix of bf16 in shared memory, kColumns (a multiple of 64) wide, in chunks of 16 bytes whose
// order within 8 depends on the row: neither a column of rows nor a row meets a bank twice.
template <int kColumns>
struct SwizzledTile {
  static constexpr int kChunks = kColumns / 8;  // of a row
  static_assert(kColumns % 64 == 0);

  uint32_t base;  // shared address

  __device__ uint32_t At(int row, int chunk) const {
    return base + static_cast<uint32_t>(row * kChunks + (chunk ^ (row & 7))) * 16;
  }

  // Operand a: rows [row, row + 16), columns [column, column + 16).
  __device__ void LoadA(uint32_t (&to)[4], int row, int column, int lane) const {
    LoadMatrices(to, At(row + (lane & 15), column / 8 + lane / 16));
  }
  // Operand b of two products, where the tile holds b transposed ([n, k], as keys are): n from
  // `row`, 16 of them; k from `column`. to[0..1] is the first product's, to[2..3] the second's.
  __device__ void LoadB(uint32_t (&to)[4], int row, int column, int lane) const {
    LoadMatrices(to, At(row + (lane & 7) + (lane / 16) * 8, column / 8 + ((lane >> 3) & 1)));
  }
  // Likewise where the tile holds b as it is ([k, n], as values are): k from `row`, n from
  // `column`, 16 of them.
  __device__ void LoadBTransposed(uint32_t (&to)[4], int row, int column, int lane) const {
    LoadMatricesTransposed(to, At(row + (lane & 15), column / 8 + lane / 16));
  }
};

// Largest, and sum, of the four lanes that share a row of an accumulator.
__device__ inline float RowMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float RowSum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

}  // namespace longspan::backend::cuda
