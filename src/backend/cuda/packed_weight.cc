#include "backend/cuda/packed_weight.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <vector>

#include "backend/cuda/cuda_memory.h"
#include "ops/check_backend.h"

namespace longspan::backend::cuda {
namespace {

using tensor::Bf16;
using tensor::DType;

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) == alignof(CUtensorMap));

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time: the program starts without a driver.
Encode FindEncode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(function);
}

bool MakeMap(void* data, int64_t rows, int64_t columns, TensorMap& map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * sizeof(Bf16)};
  const cuuint32_t box[] = {kMapColumns, kMapRows};
  const cuuint32_t steps[] = {1, 1};
  return encode(reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data,
                sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

float Element(const tensor::ConstView& part, int64_t at) {
  switch (part.dtype()) {
    case DType::kBf16:
      return tensor::ToFloat(static_cast<const Bf16*>(part.raw())[at]);
    case DType::kF16:
      return tensor::HalfToFloat(static_cast<const uint16_t*>(part.raw())[at]);
    default:
      return static_cast<const float*>(part.raw())[at];
  }
}

// Rows [begin, begin + count) of a part in the compute type, densely.
void ConvertRows(const tensor::ConstView& part, int64_t begin, int64_t count, DType compute,
                 std::byte* out) {
  const int64_t columns = part.size(1);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t first = (begin + row) * part.stride(0);
    if (part.dtype() == compute) {
      const int64_t bytes = columns * tensor::SizeOf(compute);
      std::memcpy(out + row * bytes,
                  static_cast<const std::byte*>(part.raw()) + first * tensor::SizeOf(compute),
                  bytes);
    } else if (compute == DType::kF32) {
      for (int64_t i = 0; i < columns; ++i)
        reinterpret_cast<float*>(out)[row * columns + i] = Element(part, first + i);
    } else {
      for (int64_t i = 0; i < columns; ++i)
        reinterpret_cast<Bf16*>(out)[row * columns + i] = tensor::ToBf16(Element(part, first + i));
    }
  }
}

base::Status CopyPart(const tensor::ConstView& part, DType compute, std::byte* device) {
  const int64_t row_bytes = part.size(1) * tensor::SizeOf(compute);
  if (part.dtype() == compute && part.contiguous()) {
    return CopyToDevice(
        {static_cast<const std::byte*>(part.raw()), static_cast<size_t>(part.size(0) * row_bytes)},
        device);
  }
  constexpr int64_t kPieceBytes = int64_t{8} << 20;
  const int64_t rows_at_once = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, row_bytes));
  std::vector<std::byte> piece(std::min(rows_at_once, part.size(0)) * row_bytes);
  for (int64_t row = 0; row < part.size(0); row += rows_at_once) {
    const int64_t count = std::min(rows_at_once, part.size(0) - row);
    ConvertRows(part, row, count, compute, piece.data());
    LONGSPAN_RETURN_IF_ERROR(CopyToDevice({piece.data(), static_cast<size_t>(count * row_bytes)},
                                          device + row * row_bytes));
  }
  return base::OkStatus();
}

}  // namespace

CudaWeight::CudaWeight(int64_t rows, int64_t columns, DType dtype, tensor::Buffer data)
    : PackedWeight(rows, columns), dtype_(dtype), data_(std::move(data)) {
  if (dtype == DType::kBf16 && rows > 0 && columns > 0 && columns % 8 == 0)
    has_map_ = MakeMap(data_.data(), rows, columns, map_);
}

base::Result<std::unique_ptr<CudaWeight>> AllocateWeight(int64_t rows, int64_t columns,
                                                         DType dtype) {
  LONGSPAN_ASSIGN_OR_RETURN(tensor::Buffer data,
                            AllocateWeights(rows * columns * tensor::SizeOf(dtype)));
  return std::make_unique<CudaWeight>(rows, columns, dtype, std::move(data));
}

base::Result<std::unique_ptr<ops::PackedWeight>> PackWeight(const ops::PackRequest& request) {
  LONGSPAN_RETURN_IF_ERROR(ops::CheckFloatTypes("cuda", request.compute, request.compute));
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t rows, ops::StackedRows("cuda", request));
  const int64_t columns = request.parts[0].size(1);
  const int64_t row_bytes = columns * tensor::SizeOf(request.compute);
  LONGSPAN_ASSIGN_OR_RETURN(tensor::Buffer data, AllocateWeights(rows * row_bytes));
  auto* target = static_cast<std::byte*>(data.data());
  for (const tensor::ConstView& part : request.parts) {
    LONGSPAN_RETURN_IF_ERROR(CopyPart(part, request.compute, target));
    target += part.size(0) * row_bytes;
  }
  return std::unique_ptr<ops::PackedWeight>(
      std::make_unique<CudaWeight>(rows, columns, request.compute, std::move(data)));
}

}  // namespace longspan::backend::cuda
