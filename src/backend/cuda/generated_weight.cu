// Weights that are drawn from a table by a counter (base/counter_table.h), made where they are
// used: no byte of them crosses from the host.
#include <algorithm>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/packed_weight.h"
#include "base/counter_table.h"

namespace longspan::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 8 * 132;

// Travels as a kernel's parameter: no copy to wait for.
struct Table {
  uint16_t bits[base::kCounterTableSize];
};

__device__ void Write(__nv_bfloat16* out, uint16_t bits) { *out = __ushort_as_bfloat16(bits); }
__device__ void Write(float* out, uint16_t bits) {
  *out = __uint_as_float(static_cast<unsigned>(bits) << 16);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GenerateKernel(const __grid_constant__ Table table, uint64_t key, int64_t elements, T* out) {
  __shared__ uint16_t values[base::kCounterTableSize];
  for (int i = threadIdx.x; i < base::kCounterTableSize; i += kThreads) values[i] = table.bits[i];
  __syncthreads();
  const int64_t blocks = (elements + base::kElementsPerMix - 1) / base::kElementsPerMix;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t block = int64_t{blockIdx.x} * kThreads + threadIdx.x; block < blocks;
       block += stride) {
    const uint64_t bits = base::CounterTableBits(key, static_cast<uint64_t>(block));
#pragma unroll
    for (int lane = 0; lane < base::kElementsPerMix; ++lane) {
      const int64_t element = block * base::kElementsPerMix + lane;
      if (element < elements) Write(out + element, values[base::CounterTableIndex(bits, lane)]);
    }
  }
}

template <typename T>
base::Status GenerateParts(const ops::GenerateRequest& request, T* out) {
  for (const ops::GeneratedMatrix& part : request.parts) {
    LONGSPAN_CHECK(part.table.size() == base::kCounterTableSize, "a table of {} values",
                   part.table.size());
    Table table;
    std::memcpy(table.bits, part.table.data(), sizeof(table.bits));
    const int64_t elements = part.rows * request.columns;
    const int64_t per_block = int64_t{kThreads} * base::kElementsPerMix;
    const auto blocks = static_cast<unsigned>(
        std::clamp<int64_t>((elements + per_block - 1) / per_block, 1, kMaxBlocks));
    GenerateKernel<T><<<blocks, kThreads, 0, cudaStreamPerThread>>>(table, part.key, elements, out);
    LONGSPAN_RETURN_IF_CUDA(cudaGetLastError(), "make weights");
    out += elements;
  }
  return ToStatus(cudaStreamSynchronize(cudaStreamPerThread), "make weights");
}

}  // namespace

base::Result<std::unique_ptr<ops::PackedWeight>> GenerateWeight(
    const ops::GenerateRequest& request) {
  int64_t rows = 0;
  for (const ops::GeneratedMatrix& part : request.parts) rows += part.rows;
  LONGSPAN_ASSIGN_OR_RETURN(auto weight, AllocateWeight(rows, request.columns, request.compute));
  LONGSPAN_RETURN_IF_ERROR(
      request.compute == tensor::DType::kF32
          ? GenerateParts(request, static_cast<float*>(weight->data()))
          : GenerateParts(request, static_cast<__nv_bfloat16*>(weight->data())));
  return std::unique_ptr<ops::PackedWeight>(std::move(weight));
}

}  // namespace longspan::backend::cuda
