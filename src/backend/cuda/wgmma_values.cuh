// Products of the matrix unit whose left operand is in registers: weights of attention with values.
#pragma once

#include <cstdint>

#include "backend/cuda/wgmma.cuh"

namespace longspan::backend::cuda {

// A descriptor of an operand [k, n] that lies as rows of k: 64 columns (n) of 128 bytes to a chunk,
// permuted as SwizzledOffset says, chunks `chunk_bytes` apart. `address`: of the first of 16 rows,
// a multiple of 1024.
__device__ inline uint64_t RowOperand(uint32_t address, uint32_t chunk_bytes) {
  constexpr uint64_t kEightRows = 1024;
  constexpr uint64_t kSwizzle128 = 1;
  return (static_cast<uint64_t>(address & 0x3ffff) >> 4) |
         (static_cast<uint64_t>(chunk_bytes >> 4) << 16) | (kEightRows >> 4 << 32) |
         (kSwizzle128 << 62);
}

#define LONGSPAN_OUT_4(s, i) "+f"(s[(i)]), "+f"(s[(i) + 1]), "+f"(s[(i) + 2]), "+f"(s[(i) + 3])
#define LONGSPAN_OUT_16(s, i)                                                   \
  LONGSPAN_OUT_4(s, i), LONGSPAN_OUT_4(s, (i) + 4), LONGSPAN_OUT_4(s, (i) + 8), \
      LONGSPAN_OUT_4(s, (i) + 12)

// sums [64, n] += a [64, 16] b [16, n], n = 128 or 64. A thread's elements of a row are as those of
// sums (wgmma.cuh): a[0] columns t % 4 * 2 and the next of its first row, a[1] of its second, a[2]
// and a[3] the same eight columns on.
__device__ inline void MultiplyAddValues(float (&sums)[64], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
      : LONGSPAN_OUT_16(sums, 0), LONGSPAN_OUT_16(sums, 16), LONGSPAN_OUT_16(sums, 32),
        LONGSPAN_OUT_16(sums, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void MultiplyAddValues(float (&sums)[32], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
      : LONGSPAN_OUT_16(sums, 0), LONGSPAN_OUT_16(sums, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef LONGSPAN_OUT_16
#undef LONGSPAN_OUT_4

}  // namespace longspan::backend::cuda
