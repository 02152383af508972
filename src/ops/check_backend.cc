#include "ops/check_backend.h"

namespace longspan::ops {
namespace {

using tensor::DType;

bool IsSupportedType(DType type) { return type == DType::kF32 || type == DType::kBf16; }

}  // namespace

base::Status CheckFloatTypes(std::string_view backend, DType compute, DType kv_cache) {
  if (!IsSupportedType(compute))
    return base::Unimplemented(
        "the {} backend computes in f32 or bf16, not {}: use --dtype f32 or bf16", backend,
        tensor::DTypeName(compute));
  if (!IsSupportedType(kv_cache))
    return base::Unimplemented(
        "the {} backend has a KV cache of f32 or bf16, not {}: use --kv-cache-dtype f32 or bf16",
        backend, tensor::DTypeName(kv_cache));
  return base::OkStatus();
}

base::Result<int64_t> StackedRows(std::string_view backend, const PackRequest& request) {
  if (request.parts.empty()) return base::InvalidArgument("a weight needs at least one matrix");
  const int64_t columns = request.parts[0].size(1);
  int64_t rows = 0;
  for (const tensor::ConstView& part : request.parts) {
    if (part.rank() != 2 || part.size(1) != columns)
      return base::InvalidArgument("matrices of {} and {} columns cannot be stacked", columns,
                                   part.size(1));
    if (!IsSupportedType(part.dtype()) && part.dtype() != DType::kF16)
      return base::Unimplemented("the {} backend packs weights of f32, bf16 or f16, not of {}",
                                 backend, tensor::DTypeName(part.dtype()));
    rows += part.size(0);
  }
  return rows;
}

}  // namespace longspan::ops
