// Cache write: rows to their slots, rounded to the cache's type.
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/element.cuh"
#include "backend/cuda/step_rows.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

struct Rows {
  const void* x;
  int64_t row_stride;
  int64_t head_stride;
  const int64_t* slots;
  void* cache;
  int64_t heads;
  int64_t dim;
  int64_t page_size;
  int64_t chunks;  // of a row, for the kernel's width
};

// kWidth elements for each thread: 8 where both sides are aligned for it.
template <typename From, typename To, int kWidth>
__global__ void CacheWriteKernel(Rows rows) {
  const int64_t row = blockIdx.x;
  const int64_t slot = rows.slots[row];
  const int64_t page = slot / rows.page_size;
  const int64_t offset = slot % rows.page_size;
  for (int64_t i = threadIdx.x; i < rows.chunks; i += blockDim.x) {
    const int64_t head = i * kWidth / rows.dim;
    const int64_t column = i * kWidth % rows.dim;
    const From* from =
        static_cast<const From*>(rows.x) + row * rows.row_stride + head * rows.head_stride + column;
    To* to = static_cast<To*>(rows.cache) +
             ((page * rows.heads + head) * rows.page_size + offset) * rows.dim + column;
    if constexpr (kWidth == 8 && sizeof(From) == 2 && sizeof(To) == 2) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) to[j] = FromFloat<To>(ToFloat(from[j]));
    }
  }
}

}  // namespace

void CacheWrite(ExecutionContext& context, const ops::CacheWriteArgs& args) {
  const int64_t count = args.x.size(0);
  const int64_t width = args.x.size(1) * args.x.size(2);
  if (count == 0 || width == 0) return;
  Rows rows = {args.x.raw(),
               args.x.stride(0),
               args.x.stride(1),
               args.slots.data<int64_t>(),
               args.cache.raw(),
               args.cache.size(1),
               args.cache.size(3),
               args.cache.size(2),
               width};
  const bool wide = args.x.dtype() == tensor::DType::kBf16 &&
                    args.cache.dtype() == tensor::DType::kBf16 && IsAligned16(args.x) &&
                    IsAligned16(args.cache);
  const auto launch = [&]<typename From, typename To>(From, To) {
    const auto run = [&](auto kernel, int64_t per_thread) {
      rows.chunks = width / per_thread;
      const int64_t threads = std::min<int64_t>(256, (rows.chunks + 31) / 32 * 32);
      kernel<<<static_cast<unsigned>(count), static_cast<unsigned>(threads), 0,
               StreamOf(context)>>>(rows);
    };
    if (wide) return run(CacheWriteKernel<From, To, 8>, 8);
    run(CacheWriteKernel<From, To, 1>, 1);
  };
  WithTypes(args.x.dtype(), args.cache.dtype(), launch);
  NoteLaunch(context, "cache_write");
}

}  // namespace longspan::backend::cuda
