#include "backend/cuda/product.h"

#include <algorithm>
#include <cstddef>

#include "backend/cuda/packed_weight.h"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

bool IsAligned(const Product& product) {
  return reinterpret_cast<uintptr_t>(product.x) % 16 == 0 && product.x_stride % 8 == 0 &&
         product.x_group_stride % 8 == 0;
}

// The product of the groups from `first` on.
Product From(const Product& product, int64_t first, ProductTypes types) {
  Product rest = product;
  rest.x = static_cast<const std::byte*>(product.x) +
           first * product.x_group_stride * tensor::SizeOf(types.x);
  rest.out = static_cast<std::byte*>(product.out) +
             first * product.out_group_stride * tensor::SizeOf(types.out);
  if (product.begin != nullptr) rest.begin = product.begin + first;
  return rest;
}

}  // namespace

void Multiply(tensor::ExecutionContext& context, const Product& product,
              std::span<const ops::PackedWeight* const> weights, ProductTypes types,
              std::string_view op) {
  if (product.rows == 0 || product.features == 0) return;
  const bool on_matrix_unit =
      types.x == DType::kBf16 && IsAligned(product) &&
      std::all_of(weights.begin(), weights.end(),
                  [](const ops::PackedWeight* weight) { return AsCuda(*weight).has_map(); });
  for (size_t first = 0; first < weights.size(); first += kProductGroups) {
    const auto part =
        weights.subspan(first, std::min<size_t>(kProductGroups, weights.size() - first));
    const Product rest = From(product, static_cast<int64_t>(first), types);
    if (on_matrix_unit)
      MultiplyOnMatrixUnit(context, rest, part, types.out);
    else
      MultiplyPlainly(context, rest, part, types);
    NoteLaunch(context, op);
  }
}

}  // namespace longspan::backend::cuda
