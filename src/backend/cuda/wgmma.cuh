// Hopper's matrix unit: 64 x N x 16 products of bf16 by a warpgroup, with both operands in shared
// memory and f32 sums in registers (PTX ISA, "wgmma").
#pragma once

#include <cstdint>

namespace longspan::backend::cuda {

// Operands lie in shared memory as rows of 64 elements (128 bytes), eight rows to a 1024-byte block
// of which the 16-byte units of row r are permuted by exclusive or with r % 8.
constexpr int kSwizzledColumns = 64;

// Byte offset of a 16-byte unit of a row.
__device__ inline uint32_t SwizzledOffset(int row, int unit) {
  return static_cast<uint32_t>(row * 128 + ((unit ^ (row & 7)) * 16));
}

// A descriptor of an operand whose rows begin at `address` (a multiple of 1024, plus 32 for every
// 16 columns).
__device__ inline uint64_t SwizzledOperand(uint32_t address) {
  constexpr uint64_t kBlockBytes = 1024;
  constexpr uint64_t kSwizzle128 = 1;
  return (static_cast<uint64_t>(address & 0x3ffff) >> 4) | (uint64_t{1} << 16) |
         (kBlockBytes >> 4 << 32) | (kSwizzle128 << 62);
}

// Before the first product after the sums were touched.
__device__ inline void FenceSums() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most so many committed groups are not done.
template <int kPending>
__device__ inline void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving the use of sums before what precedes this.
template <int kCount>
__device__ inline void PinSums(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

#define LONGSPAN_SUMS_8(s, i)                                                           \
  "+f"(s[(i)]), "+f"(s[(i) + 1]), "+f"(s[(i) + 2]), "+f"(s[(i) + 3]), "+f"(s[(i) + 4]), \
      "+f"(s[(i) + 5]), "+f"(s[(i) + 6]), "+f"(s[(i) + 7])
#define LONGSPAN_SUMS_32(s, i)                                                      \
  LONGSPAN_SUMS_8(s, i), LONGSPAN_SUMS_8(s, (i) + 8), LONGSPAN_SUMS_8(s, (i) + 16), \
      LONGSPAN_SUMS_8(s, (i) + 24)

// 64 x 128: thread t of the warpgroup holds rows t / 32 * 16 + t % 32 / 4 (+ 8) and of every eight
// columns j two, 8 j + t % 4 * 2 (+ 1): sums[4 j + 2 (row half) + column].
__device__ inline void MultiplyAdd(float (&sums)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : LONGSPAN_SUMS_32(sums, 0), LONGSPAN_SUMS_32(sums, 32)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// 64 x 256: thread t of the warpgroup holds rows t / 32 * 16 + t % 32 / 4 (+ 8) and of every eight
// columns j two, 8 j + t % 4 * 2 (+ 1): sums[4 j + 2 (row half) + column].
__device__ inline void MultiplyAdd(float (&sums)[128], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127"
      "}, %128, %129, p, 1, 1, 0, 0;\n}\n"
      : LONGSPAN_SUMS_32(sums, 0), LONGSPAN_SUMS_32(sums, 32), LONGSPAN_SUMS_32(sums, 64),
        LONGSPAN_SUMS_32(sums, 96)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef LONGSPAN_SUMS_8
#undef LONGSPAN_SUMS_32

}  // namespace longspan::backend::cuda
